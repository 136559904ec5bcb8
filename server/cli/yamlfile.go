package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet"
)

// yamlFile is an operator's file in YAML, of which a request is made. The Go type of its
// value decides how scalars are read, so that `version: 1.10` is the text 1.10 and not the
// number 1.1. Errors name the line.
type yamlFile struct {
	name string
	// what it holds, and field, where the request has it; empty: its keys are those of the
	// request.
	what, field string
	// example is the command that prints a file to start from.
	example string
	tooLong string     // what to do about a file that is too long
	root    *yaml.Node // nil if there is no file
}

// maxYAMLFile is the size of the largest plan that the server accepts.
const maxYAMLFile = 1 << 20

// read reads the file, or standard input if it is -, into v.
func (f *yamlFile) read(cmd *cobra.Command, v any) error {
	in := cmd.InOrStdin()
	if f.name == "-" {
		f.name = "standard input"
	} else {
		file, err := os.Open(f.name)
		if err != nil {
			return fmt.Errorf("%w: `%s` prints a %s to start from", err, f.example, f.what)
		}
		defer file.Close()
		in = file
	}
	b, err := io.ReadAll(io.LimitReader(in, maxYAMLFile+1))
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if len(b) > maxYAMLFile {
		return fmt.Errorf("%s: has more than %d bytes%s", f.name, maxYAMLFile, f.tooLong)
	}
	return f.parse(b, v)
}

func (f *yamlFile) parse(b []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: is empty: `%s` prints a %s to start from", f.name, f.example, f.what)
	case err != nil:
		return notYAML(f.name, err)
	case !errors.Is(dec.Decode(&second), io.EOF):
		return fmt.Errorf("%s: has more than one document, want one %s", f.name, f.what)
	}
	f.root = doc.Content[0]
	v, err := f.value(f.root, reflect.TypeOf(into).Elem(), "")
	if err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// notYAML rewrites an error of the YAML parser to start with the file and the line.
func notYAML(name string, err error) error {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s:%s: is not YAML: %s", name, m[1], strings.TrimPrefix(text, m[0]))
	}
	return fmt.Errorf("%s: is not YAML: %s", name, strings.TrimPrefix(text, "yaml: "))
}

// errorAt returns an error about a node: with its file, its line, and at, its path.
func (f *yamlFile) errorAt(n *yaml.Node, at, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s %s", f.name, n.Line, firstOf(at, "the "+f.what), fmt.Sprintf(format, args...))
}

// value converts the node at a path to a value whose JSON a field of type t accepts.
func (f *yamlFile) value(n *yaml.Node, t reflect.Type, at string) (any, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.AliasNode:
		return nil, f.errorAt(n, at, "is a YAML alias: write the value out")
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, nil //nolint:nilnil // a key without a value is left out
	}
	if own, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		text, _ := json.Marshal(n.Value)
		if n.Kind != yaml.ScalarNode || own.UnmarshalJSON(text) != nil {
			want := "a time such as 2026-01-31T12:00:00Z"
			if t == reflect.TypeOf(fleet.Duration(0)) {
				want = "a duration such as 10m"
			}
			return nil, f.errorAt(n, at, "is %q, want %s", n.Value, want)
		}
		return json.RawMessage(text), nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return f.mapping(n, t, at)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return nil, f.errorAt(n, at, "is not a list, want one such as [a, b]")
		}
		out := []any{}
		for i, child := range n.Content {
			v, err := f.value(child, t.Elem(), fmt.Sprintf("%s[%d]", at, i))
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	if n.Kind != yaml.ScalarNode {
		return nil, f.errorAt(n, at, "is a mapping or a list, want %s", kindWords[t.Kind()])
	}
	if t.Kind() == reflect.String {
		return n.Value, nil
	}
	v := reflect.New(t)
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	whole := t.Kind() == reflect.Bool || t.Kind() == reflect.Float64 || n.Tag == "!!int" // yaml cuts 1.5 to 1
	if quoted || !whole || n.Decode(v.Interface()) != nil || v.Elem().CanFloat() && math.IsNaN(v.Elem().Float()-v.Elem().Float()) {
		return nil, f.errorAt(n, at, "is %q, want %s", n.Value, kindWords[t.Kind()])
	}
	return v.Interface(), nil
}

var kindWords = map[reflect.Kind]string{
	reflect.String: "a text", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Float64: "a number",
}

// mapping converts a mapping to the value of a struct or of a map.
func (f *yamlFile) mapping(n *yaml.Node, t reflect.Type, at string) (any, error) {
	if n.Kind != yaml.MappingNode {
		return nil, f.errorAt(n, at, "is not a mapping, want keys such as %s", strings.Join(keysOf(t), ", "))
	}
	out := map[string]any{}
	for i := 0; i < len(n.Content); i += 2 {
		key, child := n.Content[i], n.Content[i+1]
		below := strings.TrimPrefix(at+"."+key.Value, ".")
		if _, ok := out[key.Value]; ok {
			return nil, f.errorAt(key, below, "is given twice")
		}
		field, known := fieldOf(t, key.Value)
		if t.Kind() == reflect.Map {
			field.Type = t.Elem()
		} else if !known {
			return nil, f.errorAt(key, below, "is not a known key, want one of %s", strings.Join(keysOf(t), ", "))
		}
		v, err := f.value(child, field.Type, below)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, f.errorAt(child, below, "cannot be sent: %v", err)
		}
		if err := fleet.CheckGiven(field, raw); err != nil {
			return nil, f.errorAt(child, below, "%v", err)
		}
		out[key.Value] = v
	}
	return out, nil
}

// fieldOf returns the field of a struct that has a name in JSON.
func fieldOf(t reflect.Type, name string) (_ reflect.StructField, ok bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key == name && name != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// keysOf returns the JSON names of a struct's fields, in order.
func keysOf(t reflect.Type) (names []string) {
	if t.Kind() != reflect.Struct {
		return []string{"name: [value]"}
	}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" { // an embedded struct has none
			names = append(names, key)
		}
	}
	return names
}

// locate adds file and line to a refusal that names a field of what the file holds.
func (f *yamlFile) locate(err error) error {
	var refused *refusal
	if f.root == nil || !errors.As(err, &refused) {
		return err
	}
	at, ok := strings.CutPrefix(refused.field, f.field)
	if !ok {
		return err
	}
	at = strings.TrimPrefix(at, ".")
	n := f.root
	steps := strings.FieldsFunc(at, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	if f.field == "" && (len(steps) == 0 || child(n, steps[0]) == nil) {
		return err // a field that does not come from the file
	}
	for _, step := range steps {
		next := child(n, step)
		if next == nil {
			break // an absent field: name the line of the mapping around it
		}
		n = next
	}
	return &refusal{
		status: refused.status, field: fmt.Sprintf("%s:%d: %s", f.name, n.Line, firstOf(at, "the "+f.what)), message: refused.message, body: refused.body,
	}
}

func child(n *yaml.Node, step string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}
