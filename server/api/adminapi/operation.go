package adminapi

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// Call is an operation of the admin API, as a row of its table.
type Call struct {
	// ID is the operation's name in openapi.yaml.
	ID string
	// Method and Path are those of HTTP. Path has its parameters in braces.
	Method, Path string
	// Area is the part of the reference page that lists it.
	Area Area
	// Summary says what it does, in the imperative and without a full stop. Description says more.
	Summary, Description string
	// Permission names what a caller has to be allowed to do, such as agents.read. It is empty if
	// no permission is needed: for callers without a key, and for what concerns only the caller.
	Permission string
	// Params are the parameters in the query and in headers, and those of the path that need a
	// text.
	Params []Param
	// BodyType is the media type of the body, if it is not JSON. OptionalBody is set if a call
	// may have none.
	BodyType     string
	OptionalBody bool
	// YAML is set if the body may also be in YAML.
	YAML bool
	// Answer describes the answer, by default with DefaultAnswer. AnswerType is its media type, if
	// it is not JSON; Status is its status, if it is not 200.
	Answer, AnswerType string
	Status             int
	// Created describes an answer with the status 201 besides the one with 200.
	Created string
	// Refusal is an answer besides those that every operation has. It may be nil.
	Refusal *Refusal
	// Admission says how the server admits requests.
	Admission Admission
	// DuringUpgrades is set for a change that is possible while the servers are being upgraded.
	DuringUpgrades bool
	// Unaudited is set for an operation other than a GET that changes nothing which concerns
	// others. It is not in the audit trail.
	Unaudited bool

	in, out reflect.Type
}

// DefaultAnswer describes the answer of an operation that does not describe it itself.
const DefaultAnswer = "The result"

// Refusal is a refusal with a body of its own.
type Refusal struct {
	Status int
	Body   any
	Doc    string
}

// Admission is a way in which the server admits requests.
type Admission int

const (
	// Bounded requests need a key. The server reads their bodies before it runs a bounded number
	// of them.
	Bounded Admission = iota
	// Transfer requests need a key too. They last for minutes and mostly wait, and their handlers
	// read the bodies.
	Transfer
	// Stranger requests need no key: the handlers admit them.
	Stranger
)

// Param is a parameter of an operation.
type Param struct {
	Name string
	In   string // query (by default), header or path
	// Is has the parameter's Go type. nil is a string.
	Is any
	// Schema has what JSON schemas say about the value, as the tag of a field does: see package
	// openapi.
	Schema   string
	Example  string
	Required bool
	Doc      string
}

// InQuery reports whether the parameter is in the query.
func (p Param) InQuery() bool { return p.In == "" }

// Type returns the parameter's Go type.
func (p Param) Type() reflect.Type {
	if p.Is == nil {
		return reflect.TypeFor[string]()
	}
	return reflect.TypeOf(p.Is)
}

// Kind returns what the parameter is in JSON: string, integer, boolean or array.
func (p Param) Kind() string {
	switch t := p.Type(); t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "array"
	}
	return "string"
}

// In returns the type of the body.
func (c *Call) In() reflect.Type { return c.in }

// Out returns the type of the answer.
func (c *Call) Out() reflect.Type { return c.out }

// Kibana reports whether the operation is one of Kibana's Fleet API, with the headers and the
// strict query that it has.
func (c *Call) Kibana() bool { return strings.HasPrefix(c.Path, "/api/fleet/") }

// Reads reports whether the operation changes nothing at all.
func (c *Call) Reads() bool { return c.Method == http.MethodGet }

// Verb names the operation in the audit trail, such as admin_keys.rotate for
// POST /api/v1/admin_keys/{keyId}/rotate.
func (c *Call) Verb() string {
	var words []string
	for w := range strings.SplitSeq(c.Path, "/") {
		if w != "" && w != "api" && w != "v1" && w != "fleet" && !strings.HasPrefix(w, "{") {
			words = append(words, w)
		}
	}
	if len(words) == 1 {
		words = append(words, map[string]string{http.MethodPost: "create", http.MethodPut: "set", http.MethodDelete: "delete"}[c.Method])
	}
	return strings.Join(words, ".")
}

// URL returns the operation's path with the values of its path parameters, in their order.
func (c *Call) URL(values ...string) string {
	var b strings.Builder
	rest := c.Path
	for _, v := range values {
		before, after, _ := strings.Cut(rest, "{")
		_, rest, _ = strings.Cut(after, "}")
		b.WriteString(before)
		b.WriteString(url.PathEscape(v))
	}
	b.WriteString(rest)
	if strings.Contains(rest, "{") || strings.Count(c.Path, "{") != len(values) {
		panic("adminapi: " + c.ID + " is called with the wrong number of path parameters")
	}
	return b.String()
}

// Operation is a call with the types of its body and its answer.
type Operation[In, Out any] struct{ *Call }

// None is the body of an operation that takes none.
type None struct{}

// Text is a body or an answer that is no JSON.
type Text string

// Binary is a body or an answer of any bytes.
type Binary []byte

var calls []*Call

// Calls returns all operations, in the order of the tables.
func Calls() []*Call { return calls }

// op adds an operation to those of the API.
func op[In, Out any](c Call) Operation[In, Out] {
	c.in, c.out = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	calls = append(calls, &c)
	return Operation[In, Out]{&c}
}

// Area is a part of the API.
type Area string

// The areas, in the order of the reference page.
const (
	AreaAgents         Area = "agents"
	AreaComponents     Area = "components"
	AreaActions        Area = "actions"
	AreaKeys           Area = "keys"
	AreaPolicies       Area = "policies"
	AreaPackages       Area = "packages"
	AreaRollouts       Area = "rollouts"
	AreaGroups         Area = "groups"
	AreaFleets         Area = "fleets"
	AreaIncidents      Area = "incidents"
	AreaWebhooks       Area = "webhooks"
	AreaServer         Area = "server"
	AreaInfrastructure Area = "infrastructure"
)

// Areas are the areas that the reference page has. Those of Kibana's infrastructure are for its
// clients only.
var Areas = []Area{AreaAgents, AreaComponents, AreaActions, AreaKeys, AreaPolicies, AreaPackages, AreaRollouts, AreaGroups, AreaFleets, AreaIncidents, AreaWebhooks, AreaServer}
