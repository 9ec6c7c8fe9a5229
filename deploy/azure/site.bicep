// The web role on App Service; the scheduler and the senders stay on Container Apps. A slot is tried out with
// tables and queues of its own and then swapped: the image moves, the settings that belong to a slot do not.

param name string
param siteName string
param location string
param identityId string
param identityClientId string
param registryServer string
param tableEndpoint string
param transportSecretUrl string
param stagingTransportSecretUrl string
param sendgridSecretUrl string
param subnetId string
param url string
param stagingUrl string
param prefix string
param stagingPrefix string
param stagingSlot string
param adminNetworks string
param candidate string
param production string

@description('A plan that has slots: Standard or Premium.')
param sku string

@minValue(2) // one may be restarting
param instances int

// The front ends of App Service reach the container from link-local addresses.
var trustedProxies = '169.254.0.0/16'

var settings = [
  {
    name: 'WEBSITES_PORT'
    value: '8025'
  }
  {
    name: 'WEBSITES_CONTAINER_STOP_TIME_LIMIT' // longer than POSTROOM_STOP_GRACE_S
    value: '60'
  }
  {
    name: 'WEBSITES_ENABLE_APP_SERVICE_STORAGE' // the journal does not belong on a network share
    value: 'false'
  }
  {
    name: 'POSTROOM_STORAGE'
    value: 'azure:${tableEndpoint}'
  }
  {
    name: 'AZURE_CLIENT_ID'
    value: identityClientId
  }
  {
    name: 'POSTROOM_STOP_GRACE_S'
    value: '30'
  }
  {
    name: 'POSTROOM_STOP_NOTICE_S'
    value: '10'
  }
  {
    name: 'POSTROOM_TRUSTED_PROXIES'
    value: trustedProxies
  }
  {
    name: 'POSTROOM_ADMIN_NETWORKS'
    value: adminNetworks
  }
]

var productionSettings = [
  {
    name: 'POSTROOM_URL'
    value: url
  }
  {
    name: 'POSTROOM_AZURE_PREFIX'
    value: prefix
  }
  {
    name: 'POSTROOM_TRANSPORT'
    value: '@Microsoft.KeyVault(SecretUri=${transportSecretUrl})'
  }
]

var sendgridSettings = [
  {
    name: 'POSTROOM_SENDGRID_KEY'
    value: '@Microsoft.KeyVault(SecretUri=${sendgridSecretUrl})'
  }
]

var stagingSettings = [
  {
    name: 'POSTROOM_URL'
    value: stagingUrl
  }
  {
    name: 'POSTROOM_AZURE_PREFIX'
    value: stagingPrefix
  }
  {
    name: 'POSTROOM_TRANSPORT'
    value: '@Microsoft.KeyVault(SecretUri=${stagingTransportSecretUrl})'
  }
]

var identities = {
  type: 'UserAssigned'
  userAssignedIdentities: {
    '${identityId}': {}
  }
}

var container = {
  acrUseManagedIdentityCreds: true
  acrUserManagedIdentityID: identityClientId
  appCommandLine: 'web'
  healthCheckPath: '/readyz'
  alwaysOn: true
  http20Enabled: true
  minTlsVersion: '1.2'
  ftpsState: 'Disabled'
  vnetRouteAllEnabled: true // the private endpoints are in the network
}

resource plan 'Microsoft.Web/serverfarms@2024-11-01' = {
  name: '${name}-plan'
  location: location
  kind: 'linux'
  sku: {
    name: sku
    capacity: instances
  }
  properties: {
    reserved: true // Linux
  }
}

resource site 'Microsoft.Web/sites@2024-11-01' = {
  name: siteName
  location: location
  kind: 'app,linux,container'
  identity: identities
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false // any web process can answer any request
    virtualNetworkSubnetId: subnetId
    keyVaultReferenceIdentity: identityId
    siteConfig: union(container, {
      linuxFxVersion: 'DOCKER|${registryServer}/postroom:${production}'
      appSettings: concat(settings, productionSettings, empty(sendgridSecretUrl) ? [] : sendgridSettings)
    })
  }

  // These stay with the slot when slots are swapped.
  resource slotSettings 'config' = {
    name: 'slotConfigNames'
    properties: {
      appSettingNames: ['POSTROOM_URL', 'POSTROOM_AZURE_PREFIX', 'POSTROOM_TRANSPORT', 'POSTROOM_SENDGRID_KEY']
    }
  }
}

resource staging 'Microsoft.Web/sites/slots@2024-11-01' = if (candidate != production) {
  parent: site
  name: stagingSlot
  location: location
  kind: 'app,linux,container'
  identity: identities
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false
    virtualNetworkSubnetId: subnetId
    keyVaultReferenceIdentity: identityId
    siteConfig: union(container, {
      linuxFxVersion: 'DOCKER|${registryServer}/postroom:${candidate}'
      appSettings: concat(settings, stagingSettings)
    })
  }
}
