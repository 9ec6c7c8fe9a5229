// The three roles as container apps, or the web role and a job that does the work of the others now and then.
// The web role can have two revisions and splits traffic between them. The scheduler and the senders have no
// traffic to split: two versions would both send, so they run production only.

param name string
param location string
param environmentId string
param identityId string
param identityClientId string
param registryServer string
param storageName string
param tableEndpoint string
param transportSecretUrl string
param sendgridSecretUrl string
param candidate string
param production string
param url string
param prefix string
param domain string
param certificateId string
param trustedProxies string
param adminNetworks string
param onlyNetworks array
param hasWeb bool
param webMin int
param webMax int
param work string
param schedulers int
param sendersMin int
param sendersMax int
param jobTimes string

var webName = '${name}-web'
var image = '${registryServer}/postroom'

// Longer than POSTROOM_STOP_GRACE_S, or work is killed and left in doubt.
var graceSeconds = 60

var always = [
  {
    name: 'POSTROOM_STORAGE'
    value: 'azure:${tableEndpoint}' // no key: the identity signs in
  }
  {
    name: 'AZURE_CLIENT_ID' // which identity, if there are several
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

var withSendgrid = [
  {
    name: 'POSTROOM_SENDGRID_KEY'
    secretRef: 'sendgrid-key'
  }
]

var settings = concat(
  always,
  empty(sendgridSecretUrl) ? [] : withSendgrid,
  empty(prefix) ? [] : withPrefix,
  empty(adminNetworks) ? [] : withAdminNetworks
)

// Part of POSTROOM_STOP_GRACE_S: the web role keeps answering until the ingress routes nothing to it.
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

var transportSecret = [
  {
    name: 'transport'
    keyVaultUrl: transportSecretUrl
    identity: identityId
  }
]

var sendgridSecret = [
  {
    name: 'sendgrid-key'
    keyVaultUrl: sendgridSecretUrl
    identity: identityId
  }
]

var secrets = concat(transportSecret, empty(sendgridSecretUrl) ? [] : sendgridSecret)

// For the ack journal. It survives a crash of the container, which starts again in the same replica and
// knows at once which emails were sent. It does not survive the replica: when that is lost with its machine,
// everything announced is in doubt after POSTROOM_LEASE_S, and is sent again or held, as each message says.
// A network share would not help: on another machine, a journal cannot prove that an email was not sent.
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

// Before the first revision exists it cannot be named; then it is the latest one.
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

// Without a certificate, the domain is only added: then Azure can issue one.
var domains = [
  {
    name: domain
    bindingType: empty(certificateId) ? 'Disabled' : 'SniEnabled'
    certificateId: empty(certificateId) ? null : certificateId
  }
]

var allowed = [for (network, at) in onlyNetworks: {
  name: 'network-${at}'
  action: 'Allow'
  ipAddressRange: network
}]

resource web 'Microsoft.App/containerApps@2025-01-01' = if (hasWeb) {
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
        customDomains: empty(domain) ? [] : domains
        ipSecurityRestrictions: allowed
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

// One leads, the other stands by: a second one shortens the gap when the first is lost with its machine.
resource scheduler 'Microsoft.App/containerApps@2025-01-01' = if (work == 'roles') {
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

// Scaled by the same rule as `postroom serve`: one sender for every 5 batches of 99. Items being processed
// count too, so that a sender is not stopped because it took the last one; so do those that are tried again
// later, so that with `sendersMin` 0 somebody is there when they are due.
resource senders 'Microsoft.App/containerApps@2025-01-01' = if (work == 'roles') {
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
        pollingInterval: 15
        cooldownPeriod: 300
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

// Does what is due and ends: scheduler and sender in one, billed only while it runs. Two that overlap share the
// work by the same leases as the roles.
resource job 'Microsoft.App/jobs@2025-01-01' = if (work == 'job') {
  name: '${name}-drain'
  location: location
  identity: identities
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      triggerType: 'Schedule'
      scheduleTriggerConfig: {
        cronExpression: jobTimes
        parallelism: 1
        replicaCompletionCount: 1
      }
      replicaTimeout: 21600 // what is not done after six hours, the next one does
      replicaRetryLimit: 0
      registries: registries
      secrets: secrets
    }
    template: {
      containers: [
        {
          name: 'drain'
          image: '${image}:${production}'
          args: ['drain']
          env: settings
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          volumeMounts: volumeMounts
        }
      ]
      volumes: volumes
    }
  }
}

output domainVerification string = hasWeb ? web.properties.customDomainVerificationId : ''
