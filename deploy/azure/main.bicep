// Postroom on Azure: a storage account, a key vault for the one secret, an identity that may use both, a virtual
// network around them, and the roles on Container Apps or, the web role, on App Service. README.md has the
// commands. Create the registry with the image first.
targetScope = 'resourceGroup'

@description('Start of the name of every resource.')
@minLength(3)
@maxLength(12)
param name string = 'postroom'

param location string = resourceGroup().location

@description('An Azure container registry in this resource group that contains postroom:<tag>.')
param registryName string

@description('Image tag, and suffix of the web revision, to try out: lower-case letters, digits and dashes, such as v2. The same as production if nothing is being tried out.')
param candidate string

@description('Image tag in production: the web revision that gets all traffic, the scheduler and the senders.')
param production string = candidate

@description('How emails are sent: smtp://user:password@host:587, sendgrid:, or outbox: to keep them. Stored in the key vault.')
@secure()
param transport string

@description('Key of SendGrid, for transport sendgrid:. Stored in the key vault.')
@secure()
param sendgridKey string = ''

@description('How the copy in staging sends emails: it keeps them, so that nobody gets a test by mistake.')
@secure()
param stagingTransport string = 'outbox:'

@description('Public base URL. If empty, the domain with its certificate, or the address that Azure assigns.')
param url string = ''

@description('Your own domain for the web role, such as post.contoso.edu. Point it to the service first.')
param domain string = ''

@description('Bind a certificate to the domain. First deploy once without: the domain has to be added before.')
param certificate bool = false

@description('Secret URL of your own certificate, such as a wildcard one, in the key vault. If empty, Azure issues one.')
param certificateSecretUrl string = ''

@description('Storage and key vault have private addresses in the virtual network, and no public ones.')
param isolated bool = true

@description('Where the web role runs. The other roles run on Container Apps.')
@allowed(['containerApps', 'appService'])
param webOn string = 'containerApps'

@description('Plan of the web role on App Service.')
param siteSku string = 'P0v3'

@description('Prefix for the names of tables, queues and the container, so that two Postrooms can share an account.')
@maxLength(20)
param prefix string = ''

@description('Networks whose X-Forwarded-For is trusted: those of the Container Apps ingress.')
param trustedProxies string = '100.100.0.0/16'

@description('Networks that may open the admin pages, separated by commas. If empty, all.')
param adminNetworks string = ''

@description('Networks that may reach the web role at all. If empty, everybody; subscribers need its pages.')
param onlyNetworks array = []

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param redundancy string = 'Standard_LRS'

@minValue(2)
param webMin int = 2
param webMax int = 6

@description('With 2, one stands by.')
@minValue(1)
@maxValue(2)
param schedulers int = 1

@description('With 0, an email that is due waits up to a minute until a sender has started.')
@minValue(0)
param sendersMin int = 1
param sendersMax int = 8

@description('How work is done: by roles that run all the time, or by a job that runs now and then, which is the cheapest.')
@allowed(['roles', 'job'])
param work string = 'roles'

@description('When the job runs, in UTC.')
param jobTimes string = '*/10 * * * *'

@description('Days to keep logs.')
param logDays int = 30

// Names of storage accounts and key vaults are globally unique and have at most 24 characters.
var unique = take('${toLower(replace(name, '-', ''))}${uniqueString(resourceGroup().id)}', 24)

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: '${name}-identity'
  location: location
}

// --- Storage: the first role that starts creates tables, queues and the container --------------------

resource storage 'Microsoft.Storage/storageAccounts@2025-01-01' = {
  name: unique
  location: location
  kind: 'StorageV2'
  sku: {
    name: redundancy
  }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false // only the identity has access; there is no key to lose
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: isolated ? 'Disabled' : 'Enabled'
  }
}

// Storage Table, Queue and Blob Data Contributor
var dataRoles = [
  '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
  '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
]

resource dataAccess 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in dataRoles: {
  name: guid(storage.id, identity.id, role)
  scope: storage
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
  }
}]

// --- The key vault, with the secrets -------------------------------------------------------------------

resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {
  name: unique
  location: location
  properties: {
    tenantId: subscription().tenantId
    sku: {
      family: 'A'
      name: 'standard'
    }
    enableRbacAuthorization: true
    enableSoftDelete: true
    // Templates write the secret through Azure itself, which needs no way into the network.
    publicNetworkAccess: isolated ? 'Disabled' : 'Enabled'
  }
}

resource transportSecret 'Microsoft.KeyVault/vaults/secrets@2024-11-01' = {
  parent: vault
  name: 'transport'
  properties: {
    value: transport
  }
}

resource sendgridSecret 'Microsoft.KeyVault/vaults/secrets@2024-11-01' = if (!empty(sendgridKey)) {
  parent: vault
  name: 'sendgrid-key'
  properties: {
    value: sendgridKey
  }
}

resource stagingTransportSecret 'Microsoft.KeyVault/vaults/secrets@2024-11-01' = {
  parent: vault
  name: 'staging-transport'
  properties: {
    value: stagingTransport
  }
}

var secretsUser = '4633458b-17de-408a-b874-0445c86b69e6'

resource vaultAccess 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, identity.id, secretsUser)
  scope: vault
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUser)
  }
}

// --- The image --------------------------------------------------------------------------------------

resource registry 'Microsoft.ContainerRegistry/registries@2025-04-01' existing = {
  name: registryName
}

var pullImages = '7f951dda-4ed3-4680-a7ca-43fe172d538d'

resource registryAccess 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, identity.id, pullImages)
  scope: registry
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', pullImages)
  }
}

// --- The network ----------------------------------------------------------------------------------------

module network 'network.bicep' = {
  name: '${name}-network'
  params: {
    name: name
    location: location
    storageId: storage.id
    vaultId: vault.id
    isolated: isolated
  }
}

// --- Where the roles run ----------------------------------------------------------------------------

resource logs 'Microsoft.OperationalInsights/workspaces@2025-02-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: logDays
  }
}

// Whether it is in a network of ours cannot be changed later, so it always is.
resource containerApps 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: '${name}-environment'
  location: location
  identity: {
    type: 'UserAssigned' // reads your own certificate
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    vnetConfiguration: {
      infrastructureSubnetId: network.outputs.appsSubnetId
      internal: false // the web role is open to subscribers
    }
    appLogsConfiguration: {
      destination: 'log-analytics'
      logAnalyticsConfiguration: {
        customerId: logs.properties.customerId
        sharedKey: logs.listKeys().primarySharedKey
      }
    }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
  }
}

var hasSite = webOn == 'appService'
// Names of sites are globally unique, too.
var siteName = '${name}-web-${take(uniqueString(resourceGroup().id), 6)}'
var siteUrl = 'https://${siteName}.azurewebsites.net'
var appUrl = 'https://${name}-web.${containerApps.properties.defaultDomain}'
var assignedUrl = hasSite ? siteUrl : appUrl
// Links in emails have the domain once it has a certificate.
var publicUrl = !empty(url) ? url : (certificate ? 'https://${domain}' : assignedUrl)

// Tried out with tables, queues and a container of its own in the same account.
var stagingName = '${name}-stage'
var stagingPrefix = 'staging'
var stagingSlot = 'staging'
var stagingSiteUrl = 'https://${siteName}-${stagingSlot}.azurewebsites.net'
var stagingAppUrl = 'https://${stagingName}-web.${containerApps.properties.defaultDomain}'
var stagingUrl = hasSite ? stagingSiteUrl : stagingAppUrl

module ownDomain 'domain.bicep' = if (certificate) {
  name: '${name}-domain'
  params: {
    name: name
    location: location
    environmentName: containerApps.name
    domain: domain
    identityId: identity.id
    certificateSecretUrl: certificateSecretUrl
  }
}

module roles 'roles.bicep' = {
  name: '${name}-roles'
  params: {
    name: name
    location: location
    environmentId: containerApps.id
    identityId: identity.id
    identityClientId: identity.properties.clientId
    registryServer: registry.properties.loginServer
    storageName: storage.name
    tableEndpoint: storage.properties.primaryEndpoints.table
    transportSecretUrl: transportSecret.properties.secretUri
    sendgridSecretUrl: empty(sendgridKey) ? '' : sendgridSecret.properties.secretUri
    candidate: candidate
    production: production
    url: publicUrl
    prefix: prefix
    domain: hasSite ? '' : domain
    certificateId: certificate ? ownDomain.outputs.certificateId : ''
    trustedProxies: trustedProxies
    adminNetworks: adminNetworks
    onlyNetworks: onlyNetworks
    hasWeb: !hasSite
    webMin: webMin
    webMax: webMax
    work: work
    schedulers: schedulers
    sendersMin: sendersMin
    sendersMax: sendersMax
    jobTimes: jobTimes
  }
  dependsOn: [dataAccess, vaultAccess, registryAccess]
}

// The whole service once more, as the candidate, while there is one.
module staging 'roles.bicep' = if (candidate != production) {
  name: stagingName
  params: {
    name: stagingName
    location: location
    environmentId: containerApps.id
    identityId: identity.id
    identityClientId: identity.properties.clientId
    registryServer: registry.properties.loginServer
    storageName: storage.name
    tableEndpoint: storage.properties.primaryEndpoints.table
    transportSecretUrl: stagingTransportSecret.properties.secretUri
    sendgridSecretUrl: ''
    candidate: candidate
    production: candidate
    url: stagingUrl
    prefix: stagingPrefix
    domain: ''
    certificateId: ''
    trustedProxies: trustedProxies
    adminNetworks: adminNetworks
    onlyNetworks: onlyNetworks
    hasWeb: !hasSite
    webMin: 0
    webMax: 1
    work: 'roles'
    schedulers: 1
    sendersMin: 0
    sendersMax: 1
    jobTimes: jobTimes
  }
  dependsOn: [dataAccess, vaultAccess, registryAccess]
}

module site 'site.bicep' = if (hasSite) {
  name: '${name}-site'
  params: {
    name: name
    siteName: siteName
    location: location
    identityId: identity.id
    identityClientId: identity.properties.clientId
    registryServer: registry.properties.loginServer
    tableEndpoint: storage.properties.primaryEndpoints.table
    transportSecretUrl: transportSecret.properties.secretUri
    sendgridSecretUrl: empty(sendgridKey) ? '' : sendgridSecret.properties.secretUri
    stagingTransportSecretUrl: stagingTransportSecret.properties.secretUri
    subnetId: network.outputs.siteSubnetId
    url: publicUrl
    stagingUrl: stagingUrl
    prefix: prefix
    stagingPrefix: stagingPrefix
    stagingSlot: stagingSlot
    adminNetworks: adminNetworks
    candidate: candidate
    production: production
    sku: siteSku
    instances: webMin
  }
  dependsOn: [dataAccess, vaultAccess, registryAccess]
}

output url string = publicUrl
output assignedUrl string = assignedUrl
output stagingUrl string = stagingUrl
output candidateUrl string = 'https://${name}-web---staging.${containerApps.properties.defaultDomain}'
output domainVerification string = roles.outputs.domainVerification
output siteName string = siteName
output storageAccount string = storage.name
