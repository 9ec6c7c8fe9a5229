"""Writes schemas/azure-types.json again: the types of the resources in our templates.

    python -m tests.deploy.azure_types FOLDER

FOLDER has what `azmcp bicepschema get --resource-type TYPE` prints, one file for each type.
`azmcp` is the program in the npm package @azure/mcp-linux-x64; it needs no account for this. What
the templates do not touch is left out, so run this again when they use something new.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.deploy.bicep import ANY_KEY, READ_ONLY, REQUIRED, Template
from tests.deploy.reading import BICEP, SCHEMAS

# The package knows these by name, but does not contain their types.
BY_HAND: dict[str, dict[str, dict[str, str]]] = {
    "Microsoft.Network/privateDnsZones@2024-06-01": {
        "": {"name": "string!", "location": "string", "properties": "PrivateZoneProperties"}
    },
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01": {
        "": {"name": "string!", "location": "string", "properties": "VirtualNetworkLinkProperties"},
        "VirtualNetworkLinkProperties": {
            "registrationEnabled": "bool",
            "resolutionPolicy": "Default | NxDomainRedirect",
            "virtualNetwork": "SubResource",
        },
        "SubResource": {"id": "string"},
    },
}
# A resource of this type is one of many, by its name.
SLOT_SETTINGS = {
    "Microsoft.Web/sites/config@2024-11-01": {
        "": {"name": "slotConfigNames!", "properties": "SlotConfigNames"},
        "SlotConfigNames": {
            "appSettingNames": "string[]",
            "azureStorageConfigNames": "string[]",
            "connectionStringNames": "string[]",
        },
    }
}


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        types = json.loads(path.read_text(encoding="utf-8"))["results"]["BicepSchemaResult"]
        (resource,) = [each for each in types if each["$type"] == "Resource"]
        objects = {each["name"]: members(each) for each in types if each["$type"] == "Object"}
        found[resource["name"]] = {"": members(resource["bodyType"]), **objects}
    return {**found, **BY_HAND, **SLOT_SETTINGS}


def members(described: dict[str, Any]) -> dict[str, str]:
    found = {each["name"]: each["type"] + mark(each) for each in described.get("properties", [])}
    if more := described.get("additionalPropertiesType"):
        found[ANY_KEY] = more
    return found


def mark(property_: dict[str, Any]) -> str:
    flags = property_.get("flags", "")
    return REQUIRED if "Required" in flags else READ_ONLY if "ReadOnly" in flags else ""


def touched(types: dict[str, Any]) -> dict[str, Any]:
    visited: set[tuple[str, str]] = set()
    for path in BICEP:
        template = Template(path, types)
        template.check()
        visited |= template.visited
    found: dict[str, Any] = {}
    for resource, type_ in sorted(visited):
        if type_ in types.get(resource, {}):
            found.setdefault(resource, {})[type_] = types[resource][type_]
    return found


if __name__ == "__main__":
    kept = json.dumps(touched(read(Path(sys.argv[1]))), indent=1)
    (SCHEMAS / "azure-types.json").write_text(kept + "\n", encoding="utf-8")
