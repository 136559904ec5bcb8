// Package adminapi has the types of the admin API. They are generated from openapi.yaml,
// as are those of the web UI. The admin handlers encode them, the command line decodes
// them. It imports no other package of this module.
package adminapi

import _ "embed"

//go:generate go tool -modfile=../../testing/tools/tools.mod oapi-codegen -config oapi-codegen.yaml openapi.yaml

// Spec is openapi.yaml, served at /api/openapi.yaml.
//
//go:embed openapi.yaml
var Spec []byte
