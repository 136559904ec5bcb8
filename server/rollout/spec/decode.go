package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/yamltext"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// MaxDocument bounds an object that a user writes, in bytes: a selector may name 5,000 agents,
// and a store can still list thousands of objects in one read.
const MaxDocument = 256 << 10

// ErrInvalid is the code of the error about an object that cannot be applied.
const ErrInvalid = "fleet_invalid"

// Problem is what is wrong with one field.
type Problem struct {
	Path string // as in spec.strategy.kind or spec.components[1].name; empty: the whole object
	Text string // is missing: …
}

func (p Problem) String() string { return cmp.Or(p.Path, "the object") + " " + p.Text }

// Problems are all that is wrong with an object.
type Problems []Problem

func (ps *Problems) add(path, format string, args ...any) {
	*ps = append(*ps, Problem{path, fmt.Sprintf(format, args...)})
}

// Err returns an error with one line for each problem, nil if there is none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return &fleet.Error{Kind: fleet.Invalid, Code: ErrInvalid, Message: strings.Join(lines, "\n")}
}

// Mode is what happens to fields that an object has and its type does not.
type Mode int

// Values of Mode.
const (
	// Strict refuses them: a misspelt field must not disable a limit.
	Strict Mode = iota
	// Warn drops them with a warning.
	Warn
)

// Document is an object as a user wrote it.
type Document struct {
	APIVersion string
	root       *node
}

// Read reads one object in JSON or YAML, of any version. It reports a syntax error, and a field
// that is given twice is reported by Into.
func Read(body []byte) (*Document, error) {
	if len(body) > MaxDocument {
		return nil, fleet.Errorf(fleet.TooLarge, "the object has %d bytes, at most %d are accepted: select agents by a label instead of by their ids", len(body), MaxDocument)
	}
	root, err := parse(body)
	if err != nil {
		return nil, invalid("%s", err.Error())
	}
	if root.kind != '{' {
		return nil, invalid("the object is %s, want apiVersion, kind, metadata and spec", root.what())
	}
	d := &Document{root: root}
	var ps Problems
	if kind := root.text("kind"); kind != Kind {
		ps.add("kind", "is %q, want %s", kind, Kind)
	}
	if d.APIVersion = root.text("apiVersion"); d.APIVersion == "" {
		ps.add("apiVersion", "is missing, want %s", APIVersion)
	}
	return d, ps.Err()
}

func invalid(format string, args ...any) error {
	e := fleet.Errorf(fleet.Invalid, format, args...)
	e.Code = ErrInvalid
	return e
}

// foreign are the fields of Kubernetes' metadata that have no meaning here. Tools copy them from
// objects of a cluster, so they are dropped without an error.
var foreign = []string{
	"metadata.namespace", "metadata.managedFields", "metadata.selfLink", "metadata.ownerReferences", "metadata.finalizers", "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds",
}

// Into decodes the object into v, a pointer to the type of its version, without the status, which
// only servers write. All problems are reported at once. It returns the spec as it was written,
// without what was dropped, and what was dropped as warnings.
func (d *Document) Into(v any, mode Mode) (spec json.RawMessage, warnings []string, err error) {
	d.root.remove("status")
	w := walk{mode: mode}
	w.value(d.root, reflect.TypeOf(v).Elem(), "")
	if err := w.problems.Err(); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(d.root.json(), v); err != nil {
		return nil, nil, invalid("the object cannot be decoded: %s", err.Error())
	}
	if s := d.root.get("spec"); s != nil {
		spec = json.RawMessage(s.json())
	}
	return spec, w.warnings, nil
}

// JSON returns the object without what was dropped.
func (d *Document) JSON() []byte { return d.root.json() }

// Decode reads an object of this version; see Document.Into.
func Decode(body []byte, mode Mode) (f Fleet, spec json.RawMessage, warnings []string, err error) {
	d, err := Read(body)
	if err != nil {
		return f, nil, nil, err
	}
	if d.APIVersion != APIVersion {
		return f, nil, nil, Problems{{"apiVersion", fmt.Sprintf("is %q, want %s", d.APIVersion, APIVersion)}}.Err()
	}
	spec, warnings, err = d.Into(&f, mode)
	return f, spec, warnings, err
}

// walk compares a document with a type.
type walk struct {
	mode     Mode
	problems Problems
	warnings []string
}

// value checks the value at a path, and removes members that are null or unknown.
func (w *walk) value(n *node, t reflect.Type, at string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if own, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		if err := own.UnmarshalJSON(n.json()); err != nil {
			w.problems.add(at, "is %s, want %s", n.show(), wants(t))
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		if n.kind != '{' {
			w.problems.add(at, "is %s, want %s", n.show(), wants(t))
			return
		}
		w.members(n, t, at)
	case reflect.Slice:
		if n.kind != '[' {
			w.problems.add(at, "is %s, want %s", n.show(), wants(t))
			return
		}
		for i, item := range n.items {
			w.value(item, t.Elem(), fmt.Sprintf("%s[%d]", at, i))
		}
	default:
		if n.kind == 'n' || json.Unmarshal(n.json(), reflect.New(t).Interface()) != nil {
			hint := ""
			if t.Kind() == reflect.String && n.kind != '{' && n.kind != '[' && n.kind != 'n' {
				hint = ": put it in quotes"
			}
			w.problems.add(at, "is %s, want %s%s", n.show(), wants(t), hint)
		}
	}
}

func (w *walk) members(n *node, t reflect.Type, at string) {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	var names []string
	var items []*node
	for i, name := range n.names {
		below := strings.TrimPrefix(at+"."+name, ".")
		if seen[name] {
			w.problems.add(below, "is given twice")
			continue
		}
		seen[name] = true
		field, known := fields[name]
		if t.Kind() == reflect.Map {
			field.Type, known = t.Elem(), true
		}
		switch {
		case known && n.items[i].kind == 'n': // as if it were absent
			continue
		case known:
			w.value(n.items[i], field.Type, below)
			if err := fleet.CheckGiven(field, n.items[i].json()); err != nil {
				w.problems.add(below, "%s", err.Error())
			}
		case slices.Contains(foreign, below):
			w.warnings = append(w.warnings, below+" has no meaning here and is ignored")
			continue
		case w.mode == Warn:
			w.warnings = append(w.warnings, fmt.Sprintf("%s is not a known field and is ignored%s", below, hint(name, fields)))
			continue
		default:
			w.problems.add(below, "is not a known field%s", hint(name, fields))
		}
		names, items = append(names, name), append(items, n.items[i])
	}
	n.names, n.items = names, items
}

// fieldsOf returns a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	if t.Kind() != reflect.Struct {
		return out
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && !f.Anonymous {
			out[name] = f
		}
	}
	return out
}

// hint suggests the nearest field for an unknown one, or lists all.
func hint(name string, fields map[string]reflect.StructField) string {
	known := make([]string, 0, len(fields))
	for k := range fields {
		known = append(known, k)
	}
	slices.Sort(known)
	best, least := "", 1+max(2, len(name)/3)
	for _, k := range known {
		d := kql.Distance(plain(name), plain(k))
		if d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return ": did you mean " + best + "?"
	}
	return ", want one of " + strings.Join(known, ", ")
}

// plain makes max_parallel and maxParallel equal.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// wants describes the values of a type.
func wants(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[fleet.Duration]():
		return "a duration such as 10m"
	case reflect.TypeFor[time.Time]():
		return "a time such as 2026-01-31T12:00:00Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "an object with " + strings.Join(slices.Sorted(mapKeys(fieldsOf(t))), ", ")
	case reflect.Map:
		return "an object"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

func mapKeys(m map[string]reflect.StructField) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// node is a JSON value. Unlike a Go map it keeps the order of members, and those given twice.
type node struct {
	kind  jsontext.Kind
	raw   jsontext.Value // of a scalar
	names []string       // of the members of an object
	items []*node        // values of an object's members, or elements of a list
}

// parse parses JSON or YAML. JSON is parsed as such, since YAML reads some of its texts differently.
func parse(text []byte) (*node, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		return parseYAML(text)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	n, err := parseJSON(dec)
	if err == nil {
		if _, more := dec.ReadToken(); !errors.Is(more, io.EOF) {
			err = errors.New("there is text after the object")
		}
	}
	if err == nil {
		return n, nil
	}
	if n, noYAML := parseYAML(text); noYAML == nil { // YAML has braces too
		return n, nil
	}
	return nil, fmt.Errorf("the object is not JSON: %w", err)
}

func parseYAML(text []byte) (*node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the object is empty, want apiVersion, kind, metadata and spec")
	case err != nil:
		return nil, fmt.Errorf("the object is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	case !errors.Is(dec.Decode(&second), io.EOF):
		return nil, errors.New("there is more than one YAML document: send one object")
	}
	if err := yamltext.Check(&doc); err != nil {
		return nil, fmt.Errorf("the object is not accepted: %w", err)
	}
	n, err := readYAML(doc.Content[0])
	if err != nil {
		return nil, fmt.Errorf("the object is not accepted: %w", err)
	}
	return n, nil
}

func parseJSON(dec *jsontext.Decoder) (*node, error) {
	kind := dec.PeekKind()
	switch kind {
	case '{', '[':
		n := &node{kind: kind}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
		for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
			if kind == '{' {
				name, err := dec.ReadToken()
				if err != nil {
					return nil, err
				}
				n.names = append(n.names, name.String())
			}
			item, err := parseJSON(dec)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		_, err := dec.ReadToken()
		return n, err
	}
	raw, err := dec.ReadValue()
	return &node{kind: kind, raw: raw.Clone()}, err
}

// readYAML follows aliases; yamltext.Check has bounded what they stand for.
func readYAML(n *yaml.Node) (*node, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return readYAML(n.Alias)
	case yaml.SequenceNode:
		out := &node{kind: '['}
		for _, child := range n.Content {
			item, err := readYAML(child)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, item)
		}
		return out, nil
	case yaml.MappingNode:
		out := &node{kind: '{'}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: a key is not a string", n.Content[i].Line)
			}
			item, err := readYAML(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out.names, out.items = append(out.names, n.Content[i].Value), append(out.items, item)
		}
		return out, nil
	}
	return yamlScalar(n)
}

// yamlScalar converts a scalar as Kubernetes' tools do, except that a time stays the text it is.
func yamlScalar(n *yaml.Node) (*node, error) {
	var v any = n.Value
	switch n.Tag {
	case "!!null":
		v = nil
	case "!!bool", "!!int", "!!float":
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
	}
	raw, err := json.Marshal(v)
	if err != nil { // .inf and .nan
		return nil, fmt.Errorf("line %d: %s is not a number of JSON", n.Line, n.Value)
	}
	return &node{kind: jsontext.Value(raw).Kind(), raw: raw}, nil
}

func (n *node) get(name string) *node {
	if i := slices.Index(n.names, name); i >= 0 {
		return n.items[i]
	}
	return nil
}

func (n *node) text(name string) (text string) {
	if member := n.get(name); member != nil && member.kind == '"' {
		_ = json.Unmarshal(member.raw, &text) // it is a string
	}
	return text
}

func (n *node) remove(name string) {
	for {
		i := slices.Index(n.names, name)
		if i < 0 {
			return
		}
		n.names, n.items = slices.Delete(n.names, i, i+1), slices.Delete(n.items, i, i+1)
	}
}

func (n *node) json() []byte { return n.append(nil) }

func (n *node) append(b []byte) []byte {
	switch n.kind {
	case '{':
		b = append(b, '{')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			name, _ := json.Marshal(n.names[i]) // a string always encodes
			b = append(append(b, name...), ':')
			b = item.append(b)
		}
		return append(b, '}')
	case '[':
		b = append(b, '[')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.append(b)
		}
		return append(b, ']')
	}
	return append(b, n.raw...)
}

// what names the kind of the value.
func (n *node) what() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	}
	return "a number"
}

// maxShown bounds how much of a value an error repeats.
const maxShown = 60

// show shows a scalar, and names the kind of any other value.
func (n *node) show() string {
	switch {
	case n.kind == '{' || n.kind == '[':
		return n.what()
	case len(n.raw) > maxShown:
		return n.what() + " of " + strconv.Itoa(len(n.raw)) + " bytes"
	}
	return string(n.raw)
}
