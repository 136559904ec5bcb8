// Package adminapi is the wire format of the admin API. openapi.yaml is the
// source; the types here, and those of the web UI, are generated from it. The
// admin handlers encode it, the command line decodes it. It imports nothing of
// ours.
package adminapi

import _ "embed"

//go:generate go tool -modfile=../../testing/tools/tools.mod oapi-codegen -config oapi-codegen.yaml openapi.yaml

// Spec is openapi.yaml, served at /api/openapi.yaml.
//
//go:embed openapi.yaml
var Spec []byte
