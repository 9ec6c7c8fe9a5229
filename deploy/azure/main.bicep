// Postroom on Azure: a storage account, a key vault for the one secret, an identity that may use both, and
// the roles on Container Apps. README.md has the commands. Create the registry with the image first.
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

@description('How emails are sent: smtp://user:password@host:587, or outbox: to keep them. Stored in the key vault.')
@secure()
param transport string

@description('Public base URL. If empty, the one that Container Apps assigns.')
param url string = ''

@description('Prefix for the names of tables, queues and the container, so that two Postrooms can share an account.')
@maxLength(20)
param prefix string = ''

@description('Networks whose X-Forwarded-For is trusted: those of the Container Apps ingress.')
param trustedProxies string = '100.100.0.0/16'

@description('Networks that may open the admin pages, separated by commas. If empty, all.')
param adminNetworks string = ''

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param redundancy string = 'Standard_LRS'

@minValue(2)
param webMin int = 2
param webMax int = 6

@description('With 2, one stands by.')
@minValue(1)
@maxValue(2)
param schedulers int = 1

@minValue(1) // confirmations and retries are due at any time
param sendersMin int = 1
param sendersMax int = 8

@description('Days to keep logs.')
param logDays int = 30

// Names of storage accounts and key vaults are globally unique and have at most 24 characters.
var unique = take('${toLower(replace(name, '-', ''))}${uniqueString(resourceGroup().id)}', 24)

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-identity'
  location: location
}

// --- Storage: the first role that starts creates tables, queues and the container --------------------

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
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

// --- The key vault, with the only secret ---------------------------------------------------------------

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
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
  }
}

resource transportSecret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: 'transport'
  properties: {
    value: transport
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

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' existing = {
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

// --- Where the roles run ----------------------------------------------------------------------------

resource logs 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: logDays
  }
}

resource environment 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: '${name}-environment'
  location: location
  properties: {
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

module roles 'roles.bicep' = {
  name: '${name}-roles'
  params: {
    name: name
    location: location
    environmentId: environment.id
    identityId: identity.id
    identityClientId: identity.properties.clientId
    registryServer: registry.properties.loginServer
    storageName: storage.name
    tableEndpoint: storage.properties.primaryEndpoints.table
    transportSecretUrl: transportSecret.properties.secretUri
    candidate: candidate
    production: production
    url: empty(url) ? 'https://${name}-web.${environment.properties.defaultDomain}' : url
    prefix: prefix
    trustedProxies: trustedProxies
    adminNetworks: adminNetworks
    webMin: webMin
    webMax: webMax
    schedulers: schedulers
    sendersMin: sendersMin
    sendersMax: sendersMax
  }
  dependsOn: [dataAccess, vaultAccess, registryAccess]
}

output url string = roles.outputs.url
output stagingUrl string = 'https://${name}-web---staging.${environment.properties.defaultDomain}'
output storageAccount string = storage.name
