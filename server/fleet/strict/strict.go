// Package strict decodes what people write: requests in JSON, declared objects in JSON or YAML,
// files in YAML. It refuses keys that the Go type lacks, since a misspelt key must not disable a
// limit, and returns all faults at once, in the order of the text and with their paths. Callers
// have the words: clients of each interface depend on its own.
//
// Libraries do less. encoding/json, its coming version, mapstructure, goccy/go-yaml and yaml.v3
// with KnownFields stop at the first wrong type, or name no path in lists; sigs.k8s.io/yaml and
// kubernetes-sigs/json return all unknown keys, but one wrong type. None of them distinguishes a
// zero from an absent value, or reads the scalar 1.10 as text for a field that is one.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// Fault is what is wrong with a value.
type Fault struct {
	Path string // such as spec.components[1].name; empty: the whole text
	Text string // is missing: …
	Line int    // of a file; 0 if Typed did not read it
}

// Options are the rules and the words of an interface.
type Options struct {
	// Unknown returns the text about a key that a struct lacks, and whether the key is only
	// ignored, with the text as a warning. The known keys are in the order of the struct. nil: every
	// key is refused.
	Unknown func(path, name string, known []string) (text string, ignored bool)
	// Wrong returns the text about a value that cannot be decoded into a type. nil: that about a
	// value of Typed.
	Wrong func(v *Value, t reflect.Type, err error) string
	// Null returns the text about a null that is refused, or an empty one. It is not asked about
	// elements of lists. nil: null is as good as an absent value.
	Null func(path string) string
	// DropNull removes members that are null, and refuses null in lists.
	DropNull bool
}

// Value is a value of JSON or YAML. Unlike a Go map it keeps the order of members, and those given
// twice.
type Value struct {
	kind  jsontext.Kind  // 0: a scalar that is not typed yet, or an alias
	raw   jsontext.Value // of a scalar
	names []string       // of the members of an object
	items []*Value       // values of an object's members, or elements of a list
	node  *yaml.Node     // of a value that Typed has read
}

// JSON reads one JSON value.
func JSON(text []byte, opts ...jsontext.Options) (*Value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text), append(opts, jsontext.AllowDuplicateNames(true))...)
	v, err := readJSON(dec)
	if err == nil {
		if _, more := dec.ReadToken(); !errors.Is(more, io.EOF) {
			err = errors.New("there is text after the object")
		}
	}
	return v, err
}

func readJSON(dec *jsontext.Decoder) (*Value, error) {
	kind := dec.PeekKind()
	switch kind {
	case '{', '[':
		v := &Value{kind: kind}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
		for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
			if kind == '{' {
				name, err := dec.ReadToken()
				if err != nil {
					return nil, err
				}
				v.names = append(v.names, name.String())
			}
			item, err := readJSON(dec)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		_, err := dec.ReadToken()
		return v, err
	}
	raw, err := dec.ReadValue()
	return &Value{kind: kind, raw: raw.Clone()}, err
}

// YAML reads a node as Kubernetes' tools do, except that a time stays the text it is. It follows
// aliases: bound them with yamltext.Check before.
func YAML(n *yaml.Node) (*Value, error) { return readYAML(n, false) }

// Typed reads a node whose scalars get the types of the fields that they are decoded into, so that
// 1.10 is a text where a text is wanted. Faults have lines, and an alias is one.
func Typed(n *yaml.Node) (*Value, error) { return readYAML(n, true) }

func readYAML(n *yaml.Node, typed bool) (*Value, error) {
	v := &Value{}
	if typed {
		v.node = n
	}
	switch n.Kind {
	case yaml.AliasNode:
		if typed {
			return v, nil
		}
		return readYAML(n.Alias, false)
	case yaml.SequenceNode:
		v.kind = '['
	case yaml.MappingNode:
		v.kind = '{'
	default:
		return v, v.readScalar(n)
	}
	for i, child := range n.Content {
		if v.kind == '{' && i%2 == 0 {
			if child.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: a key is not a string", child.Line)
			}
			v.names = append(v.names, child.Value)
			continue
		}
		item, err := readYAML(child, typed)
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, item)
	}
	return v, nil
}

func (v *Value) readScalar(n *yaml.Node) error {
	var scalar any = n.Value
	switch {
	case n.Tag == "!!null":
		scalar = nil
	case v.node != nil:
		return nil // see as
	case n.Tag == "!!bool", n.Tag == "!!int", n.Tag == "!!float":
		if err := n.Decode(&scalar); err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
	}
	raw, err := json.Marshal(scalar)
	if err != nil { // .inf and .nan
		return fmt.Errorf("line %d: %s is not a number of JSON", n.Line, n.Value)
	}
	v.kind, v.raw = jsontext.Value(raw).Kind(), raw
	return nil
}

// Into decodes the value into to, which is a pointer, unless it has faults. It removes the members
// that are ignored.
func (v *Value) Into(to any, o Options) (warnings, faults []Fault) {
	if o.Unknown == nil {
		o.Unknown = func(_, name string, known []string) (string, bool) {
			return "is not a known key" + Hint(name, known, false), false
		}
	}
	if o.Wrong == nil {
		o.Wrong = wrongInFile
	}
	if o.Null == nil {
		o.Null = func(string) string { return "" }
	}
	t := reflect.TypeOf(to).Elem()
	w := walk{Options: o}
	w.value(v, t, "")
	if len(w.faults) == 0 {
		if err := jsonv1.Unmarshal(v.JSON(), to); err != nil {
			w.fault("", v.line(), o.Wrong(v, t, err))
		}
	}
	return w.warnings, w.faults
}

// maxFaults bounds the faults that are returned: a long text of unknown keys must not have an
// answer that is a hundred times as long. A person mends fewer at once.
const maxFaults = 100

// walk compares a value with a type.
type walk struct {
	Options
	warnings, faults []Fault
}

func (w *walk) fault(at string, line int, text string) {
	switch n := len(w.faults); {
	case n < maxFaults:
		w.faults = append(w.faults, Fault{at, text, line})
	case n == maxFaults:
		w.faults = append(w.faults, Fault{Text: "has more faults"})
	}
}

// value checks the value at a path.
func (w *walk) value(v *Value, t reflect.Type, at string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	own := ofItself(t)
	var err error
	switch {
	case v.node != nil && v.node.Kind == yaml.AliasNode:
		w.fault(at, v.line(), "is a YAML alias: write the value out")
		return
	case v.kind == 'n' && !w.DropNull:
		return
	case v.kind == 'n':
		err = errors.New("is null")
	case v.kind == '{' && !own && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		w.members(v, t, at)
	case v.kind == '[' && !own && t.Kind() == reflect.Slice:
		for i, item := range v.items {
			w.value(item, t.Elem(), fmt.Sprintf("%s[%d]", at, i))
		}
	default:
		err = v.as(t)
	}
	if err != nil {
		w.fault(at, v.line(), w.Wrong(v, t, err))
	}
}

func (w *walk) members(v *Value, t reflect.Type, at string) {
	known, fields := fieldsOf(t)
	seen := map[string]bool{}
	names, items := v.names[:0], v.items[:0] // which write only what has been read
	for i, name := range v.names {
		item, line, below := v.items[i], 0, strings.TrimPrefix(at+"."+name, ".")
		if v.node != nil {
			line = v.node.Content[2*i].Line
		}
		field, ok := fields[name]
		if t.Kind() == reflect.Map {
			field.Type, ok = t.Elem(), true
		}
		twice := seen[name]
		seen[name] = true
		switch {
		case twice:
			w.fault(below, line, "is given twice")
		case !ok:
			text, ignored := w.Unknown(below, name, known)
			if ignored {
				w.warnings = append(w.warnings, Fault{below, text, line})
				continue
			}
			w.fault(below, line, text)
		case item.kind == 'n':
			if text := w.Null(below); text != "" {
				w.fault(below, item.line(), text)
			}
			if w.DropNull {
				continue
			}
		default:
			w.value(item, field.Type, below)
			if err := checkGiven(field, item); err != nil {
				w.fault(below, item.line(), err.Error())
			}
		}
		names, items = append(names, name), append(items, item)
	}
	v.names, v.items = names, items
}

// checkGiven returns an error if a field of a struct is given as zero although zero stands for an
// absent value there, by the tag zero:"refused": once it is decoded, it cannot be told from one.
func checkGiven(f reflect.StructField, item *Value) error {
	if f.Tag.Get("zero") != "refused" {
		return nil
	}
	v := reflect.New(f.Type)
	if json.Unmarshal(item.JSON(), v.Interface()) != nil || !v.Elem().IsZero() {
		return nil // a wrong type is reported by value
	}
	return fmt.Errorf("is %v, want more than that: leave it out for the default", v.Elem())
}

// as returns an error if the value cannot be decoded into a type. A scalar of Typed becomes one of
// that type.
func (v *Value) as(t reflect.Type) error {
	if v.node != nil {
		raw, err := scalarAs(v.node, t)
		if err != nil {
			return err
		}
		v.raw = raw
	}
	to := reflect.New(t).Interface()
	if own, ok := to.(json.Unmarshaler); ok {
		return own.UnmarshalJSON(v.JSON()) // package json would wrap its error
	}
	return jsonv1.Unmarshal(v.JSON(), to)
}

func scalarAs(n *yaml.Node, t reflect.Type) ([]byte, error) {
	wrong := errors.New("has another type")
	switch {
	case n.Kind != yaml.ScalarNode:
		return nil, wrong
	case t.Kind() == reflect.String || ofItself(t):
		return json.Marshal(n.Value)
	}
	v := reflect.New(t)
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	whole := t.Kind() == reflect.Bool || t.Kind() == reflect.Float64 || n.Tag == "!!int" // yaml cuts 1.5 to 1
	if quoted || !whole || n.Decode(v.Interface()) != nil || v.Elem().CanFloat() && math.IsNaN(v.Elem().Float()-v.Elem().Float()) {
		return nil, wrong
	}
	return json.Marshal(v.Interface())
}

// ofItself reports whether a type decodes itself.
func ofItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// Keys returns the names that the fields of a struct have in JSON, in the order of the struct.
func Keys(t reflect.Type) []string {
	keys, _ := fieldsOf(t)
	return keys
}

func fieldsOf(t reflect.Type) (keys []string, fields map[string]reflect.StructField) {
	fields = map[string]reflect.StructField{}
	if t.Kind() != reflect.Struct {
		return nil, fields
	}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" { // an embedded struct has none
			keys = append(keys, key)
			fields[key] = f
		}
	}
	return keys, fields
}

// maxGuessed is the length of the longest key for which one is guessed: the cost is the product of
// the lengths.
const maxGuessed = 100

// Hint suggests the key that was meant by an unknown one, or lists all. Without guess it suggests
// one that is the same but for case, _ and -.
func Hint(name string, known []string, guess bool) string {
	plain := func(name string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name)) }
	best, least := "", 1
	if guess && len(name) <= maxGuessed {
		least += max(2, len(name)/3)
	}
	for _, k := range known {
		d := 0
		if a, b := plain(name), plain(k); a != b {
			d = least
			if least > 1 {
				d = kql.Distance(a, b)
			}
		}
		if d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return ": did you mean " + best + "?"
	}
	return ", want one of " + strings.Join(known, ", ")
}

// Want describes the values of a type.
func Want(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[fleet.Duration]():
		return "a duration such as 10m"
	case reflect.TypeFor[time.Time]():
		return "a time such as 2026-01-31T12:00:00Z"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return Want(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// wrongInFile has the words about values of a file, in those of YAML.
func wrongInFile(v *Value, t reflect.Type, _ error) string {
	own := ofItself(t)
	switch {
	case !own && t.Kind() == reflect.Struct:
		return "is not a mapping, want keys such as " + strings.Join(Keys(t), ", ")
	case !own && t.Kind() == reflect.Map:
		return "is not a mapping, want keys such as name: [value]"
	case !own && t.Kind() == reflect.Slice:
		return "is not a list, want one such as [a, b]"
	case t.Kind() == reflect.String:
		return "is a mapping or a list, want a text"
	case !own && v.node.Kind != yaml.ScalarNode:
		return "is a mapping or a list, want " + Want(t)
	}
	return fmt.Sprintf("is %q, want %s", v.node.Value, Want(t))
}

func (v *Value) line() int {
	if v.node == nil {
		return 0
	}
	return v.node.Line
}

// Get returns a member of an object, nil if it has none of that name.
func (v *Value) Get(name string) *Value {
	if i := slices.Index(v.names, name); i >= 0 {
		return v.items[i]
	}
	return nil
}

// Remove removes the members of a name.
func (v *Value) Remove(name string) {
	for {
		i := slices.Index(v.names, name)
		if i < 0 {
			return
		}
		v.names, v.items = slices.Delete(v.names, i, i+1), slices.Delete(v.items, i, i+1)
	}
}

// JSON returns the value without spaces.
func (v *Value) JSON() jsontext.Value { return v.append(nil) }

func (v *Value) append(b []byte) []byte {
	if v.kind != '{' && v.kind != '[' {
		return append(b, v.raw...)
	}
	b = append(b, byte(v.kind))
	for i, item := range v.items {
		if i > 0 {
			b = append(b, ',')
		}
		if v.kind == '{' {
			b, _ = jsontext.AppendQuote(b, v.names[i]) // an error says that bytes are replaced
			b = append(b, ':')
		}
		b = item.append(b)
	}
	return append(b, byte(v.kind)+2) // in ASCII, the closing bracket
}
