// The three roles as container apps. The web keeps several revisions and shares out traffic; workers have
// no traffic to share out, so they run one revision, that of production: two would send side by side.

param name string
param location string
param environmentId string
param identityId string
param identityClientId string
param registryServer string
param storageName string
param tableEndpoint string
param transportSecretUrl string
param candidate string
param production string
param url string
param prefix string
param trustedProxies string
param adminNetworks string
param webMin int
param webMax int
param schedulers int
param sendersMin int
param sendersMax int

var webName = '${name}-web'
var image = '${registryServer}/postroom'

// Longer than POSTROOM_STOP_GRACE_S, or work in hand is cut off and in doubt.
var graceSeconds = 60

var always = [
  {
    name: 'POSTROOM_STORAGE'
    value: 'azure:${tableEndpoint}' // no key in it: the identity vouches for us
  }
  {
    name: 'AZURE_CLIENT_ID' // which identity, should there ever be two
    value: identityClientId
  }
  {
    name: 'POSTROOM_TRANSPORT'
    secretRef: 'transport'
  }
  {
    name: 'POSTROOM_URL'
    value: url
  }
  {
    name: 'POSTROOM_STOP_GRACE_S'
    value: '30'
  }
  {
    name: 'POSTROOM_TRUSTED_PROXIES'
    value: trustedProxies
  }
]

var withPrefix = [
  {
    name: 'POSTROOM_AZURE_PREFIX'
    value: prefix
  }
]

var withAdminNetworks = [
  {
    name: 'POSTROOM_ADMIN_NETWORKS'
    value: adminNetworks
  }
]

var settings = concat(
  always,
  empty(prefix) ? [] : withPrefix,
  empty(adminNetworks) ? [] : withAdminNetworks
)

// A part of POSTROOM_STOP_GRACE_S: the web answers until the ingress sends nobody there any more.
var webSettings = [
  {
    name: 'POSTROOM_STOP_NOTICE_S'
    value: '10'
  }
]

var identities = {
  type: 'UserAssigned'
  userAssignedIdentities: {
    '${identityId}': {}
  }
}

var registries = [
  {
    server: registryServer
    identity: identityId
  }
]

var secrets = [
  {
    name: 'transport'
    keyVaultUrl: transportSecretUrl
    identity: identityId
  }
]

// The ack journal lies here. It outlives the container, which starts again in the same replica and
// settles at once what was in hand; it does not outlive the replica. When that is lost with its machine,
// whatever was announced is in doubt after POSTROOM_LEASE_S: resend or hold, as the message says.
// A share that outlives it is no better: on another machine a journal proves only what stands in it.
var volumes = [
  {
    name: 'data'
    storageType: 'EmptyDir'
  }
]

var volumeMounts = [
  {
    volumeName: 'data'
    mountPath: '/data'
  }
]

// The first revision cannot be named before it is there; it is the latest one then.
var onProduction = [
  {
    latestRevision: true
    label: 'production'
    weight: 100
  }
]

var onProductionWithStaging = [
  {
    revisionName: '${webName}--${production}'
    label: 'production'
    weight: 100
  }
  {
    revisionName: '${webName}--${candidate}'
    label: 'staging'
    weight: 0
  }
]

resource web 'Microsoft.App/containerApps@2025-01-01' = {
  name: webName
  location: location
  identity: identities
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Multiple'
      ingress: {
        external: true
        targetPort: 8025
        transport: 'auto'
        allowInsecure: false
        traffic: candidate == production ? onProduction : onProductionWithStaging
      }
      registries: registries
      secrets: secrets
    }
    template: {
      revisionSuffix: candidate
      terminationGracePeriodSeconds: graceSeconds
      containers: [
        {
          name: 'web'
          image: '${image}:${candidate}'
          args: ['web']
          env: concat(settings, webSettings)
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          volumeMounts: volumeMounts
          probes: [
            {
              type: 'Startup'
              httpGet: {
                path: '/healthz'
                port: 8025
              }
              periodSeconds: 2
              failureThreshold: 60
            }
            {
              type: 'Liveness'
              httpGet: {
                path: '/healthz'
                port: 8025
              }
              periodSeconds: 10
              timeoutSeconds: 5
            }
            {
              type: 'Readiness'
              httpGet: {
                path: '/readyz'
                port: 8025
              }
              periodSeconds: 5
              timeoutSeconds: 5
            }
          ]
        }
      ]
      volumes: volumes
      scale: {
        minReplicas: webMin
        maxReplicas: webMax
        rules: [
          {
            name: 'requests'
            http: {
              metadata: {
                concurrentRequests: '50'
              }
            }
          }
        ]
      }
    }
  }
}

// One acts, the others stand by: a second one shortens the gap when the first is lost with its machine.
resource scheduler 'Microsoft.App/containerApps@2025-01-01' = {
  name: '${name}-scheduler'
  location: location
  identity: identities
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: registries
      secrets: secrets
    }
    template: {
      terminationGracePeriodSeconds: graceSeconds
      containers: [
        {
          name: 'scheduler'
          image: '${image}:${production}'
          args: ['scheduler']
          env: settings
          resources: {
            cpu: json('0.25')
            memory: '0.5Gi'
          }
          volumeMounts: volumeMounts
        }
      ]
      volumes: volumes
      scale: {
        minReplicas: schedulers
        maxReplicas: 2
      }
    }
  }
}

// By the same rule as `postroom serve`: one sender for every 5 batches of 99. Items in hand count as
// well, so nobody is stopped for having taken the last one.
resource senders 'Microsoft.App/containerApps@2025-01-01' = {
  name: '${name}-sender'
  location: location
  identity: identities
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: registries
      secrets: secrets
    }
    template: {
      terminationGracePeriodSeconds: graceSeconds
      containers: [
        {
          name: 'sender'
          image: '${image}:${production}'
          args: ['sender']
          env: settings
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          volumeMounts: volumeMounts
        }
      ]
      volumes: volumes
      scale: {
        minReplicas: sendersMin
        maxReplicas: sendersMax
        rules: [
          {
            name: 'mails'
            custom: {
              type: 'azure-queue'
              identity: identityId
              metadata: {
                accountName: storageName
                queueName: '${prefix}azuremailqueue'
                queueLength: '5'
                queueLengthStrategy: 'all'
              }
            }
          }
          {
            name: 'confirmations'
            custom: {
              type: 'azure-queue'
              identity: identityId
              metadata: {
                accountName: storageName
                queueName: '${prefix}azuremailsubscribequeue'
                queueLength: '500'
                queueLengthStrategy: 'all'
              }
            }
          }
        ]
      }
    }
  }
}

output url string = 'https://${web.properties.configuration.ingress.fqdn}'
