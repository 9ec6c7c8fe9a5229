// The certificate for the service's own domain: one that Azure issues and renews, or one of yours from the key
// vault, such as a wildcard certificate, which Azure does not issue. Azure issues one only for a domain that is
// already added to the web role and points to it; docs/azure.md has the steps.

param name string
param location string
param environmentName string
param domain string
param identityId string

@description('Secret URL of a certificate in the key vault. If empty, Azure issues one.')
param certificateSecretUrl string

resource containerApps 'Microsoft.App/managedEnvironments@2025-01-01' existing = {
  name: environmentName
}

resource issued 'Microsoft.App/managedEnvironments/managedCertificates@2025-01-01' = if (empty(certificateSecretUrl)) {
  parent: containerApps
  name: '${name}-domain'
  location: location
  properties: {
    subjectName: domain
    domainControlValidation: 'CNAME'
  }
}

resource own 'Microsoft.App/managedEnvironments/certificates@2025-01-01' = if (!empty(certificateSecretUrl)) {
  parent: containerApps
  name: '${name}-own'
  location: location
  properties: {
    certificateKeyVaultProperties: {
      identity: identityId
      keyVaultUrl: certificateSecretUrl
    }
  }
}

output certificateId string = empty(certificateSecretUrl) ? issued.id : own.id
