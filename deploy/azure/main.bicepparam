// What differs between installations; README.md says which line to change when.
using 'main.bicep'

param name = 'postroom'
param registryName = readEnvironmentVariable('REGISTRY')
param candidate = 'v1'
param production = 'v1'
param transport = readEnvironmentVariable('TRANSPORT')
param url = ''
param domain = ''
param certificate = false
param isolated = true
param webOn = 'containerApps'
param webMin = 2
param webMax = 6
param work = 'roles'
param schedulers = 1
param sendersMin = 1
param sendersMax = 8
