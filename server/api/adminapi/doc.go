// Package adminapi says what the admin API can do. A table for each area (agents.go,
// rollouts.go …) has its operations and, below them, the types of their bodies and answers.
// The routes of the server, openapi.yaml, the calls of the command line and the reference page
// follow from it: see DESIGN.md.
package adminapi

import _ "embed"

//go:generate go run -tags=nomsgpack ../../../testing/tools/openapi openapi.yaml

// Spec is openapi.yaml, served at /api/openapi.yaml. It is generated from the operations.
//
//go:embed openapi.yaml
var Spec []byte

// About introduces the API, in Markdown.
const About = `The API of operators, the web UI and the command line, on port 8221.

Paths under ` + "`/api/fleet`" + ` are those of Kibana's Fleet, so that its clients
work unchanged. Paths under ` + "`/api/v1`" + ` are Muster's own. Both are also
served under ` + "`/s/default`" + `, the path of Kibana's default space.

Every call needs an admin key or the session cookie. The Authorization header
takes the key as ` + "`ApiKey base64(id:secret)`, as `Bearer base64(id:secret)`" + `, or
as ` + "`Basic`" + ` with the id as user name and the secret as password. A call that
changes something also needs the header ` + "`kbn-xsrf`, with any value, if it is under `/api/fleet`" + `
or uses ` + "`Basic`" + ` or the cookie.
`
