// The virtual network of the service, and private addresses for its storage and its key vault. Everything in
// the network finds them by their usual names, which private DNS zones answer with the private addresses.

param name string
param location string
param storageId string
param vaultId string

@description('Create the private endpoints. They are billed by the hour; the network itself costs nothing.')
param isolated bool

// Each part of the account has an endpoint of its own.
var endpoints = [
  {
    part: 'table'
    target: storageId
    zone: 'privatelink.table.${environment().suffixes.storage}'
  }
  {
    part: 'queue'
    target: storageId
    zone: 'privatelink.queue.${environment().suffixes.storage}'
  }
  {
    part: 'blob'
    target: storageId
    zone: 'privatelink.blob.${environment().suffixes.storage}'
  }
  {
    part: 'vault'
    target: vaultId
    zone: 'privatelink.vaultcore.azure.net'
  }
]

var wanted = isolated ? endpoints : []

resource network 'Microsoft.Network/virtualNetworks@2024-07-01' = {
  name: '${name}-network'
  location: location
  properties: {
    addressSpace: {
      addressPrefixes: ['10.20.0.0/22']
    }
    subnets: [
      {
        name: 'apps' // Container Apps; a replica takes an address, and an update needs twice as many
        properties: {
          addressPrefix: '10.20.0.0/24'
          delegations: [
            {
              name: 'apps'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'site' // App Service
        properties: {
          addressPrefix: '10.20.1.0/26'
          delegations: [
            {
              name: 'site'
              properties: {
                serviceName: 'Microsoft.Web/serverFarms'
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.20.1.64/26'
        }
      }
    ]
  }

  resource apps 'subnets' existing = {
    name: 'apps'
  }

  resource site 'subnets' existing = {
    name: 'site'
  }

  resource private 'subnets' existing = {
    name: 'endpoints'
  }
}

resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [for each in wanted: {
  name: each.zone
  location: 'global'
}]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [for (each, at) in wanted: {
  parent: zones[at]
  name: '${name}-${each.part}'
  location: 'global'
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: network.id
    }
  }
}]

resource privateEndpoints 'Microsoft.Network/privateEndpoints@2024-07-01' = [for each in wanted: {
  name: '${name}-${each.part}'
  location: location
  properties: {
    subnet: {
      id: network::private.id
    }
    privateLinkServiceConnections: [
      {
        name: each.part
        properties: {
          privateLinkServiceId: each.target
          groupIds: [each.part]
        }
      }
    ]
  }
}]

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-07-01' = [for (each, at) in wanted: {
  parent: privateEndpoints[at]
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: each.part
        properties: {
          privateDnsZoneId: zones[at].id
        }
      }
    ]
  }
}]

output appsSubnetId string = network::apps.id
output siteSubnetId string = network::site.id
