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

	"github.com/go-json-experiment/json/jsontext"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
)

// MaxDocument bounds an object that a user writes, in bytes: a selector may name 5,000 agents,
// and a store can still list thousands of objects in one read.
const MaxDocument = 256 << 10

// ErrInvalid is the code of the error about an object that cannot be applied.
const ErrInvalid = "fleet_invalid"

// Problems are all that is wrong with an object.
type Problems []strict.Fault

func (ps *Problems) add(path, format string, args ...any) {
	*ps = append(*ps, strict.Fault{Path: path, Text: fmt.Sprintf(format, args...)})
}

// Err returns an error with one line for each problem, nil if there is none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &fleet.Error{Kind: fleet.Invalid, Code: ErrInvalid, Message: strings.Join(lines(ps), "\n")}
}

func lines(faults []strict.Fault) (out []string) {
	for _, f := range faults {
		out = append(out, cmp.Or(f.Path, "the object")+" "+f.Text)
	}
	return out
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
	root       *strict.Value
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
	if json := root.JSON(); json.Kind() != '{' {
		return nil, invalid("the object is %s, want apiVersion, kind, metadata and spec", what(json))
	}
	d := &Document{root: root}
	var ps Problems
	if kind := text(root, "kind"); kind != Kind {
		ps.add("kind", "is %q, want %s", kind, Kind)
	}
	if d.APIVersion = text(root, "apiVersion"); d.APIVersion == "" {
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
	d.root.Remove("status")
	ignored, faults := d.root.Into(v, words(mode))
	if len(faults) > 0 {
		return nil, nil, Problems(faults).Err()
	}
	if s := d.root.Get("spec"); s != nil {
		spec = json.RawMessage(s.JSON())
	}
	return spec, lines(ignored), nil
}

// JSON returns the object without what was dropped.
func (d *Document) JSON() []byte { return d.root.JSON() }

// Decode reads an object of this version; see Document.Into.
func Decode(body []byte, mode Mode) (f Fleet, spec json.RawMessage, warnings []string, err error) {
	d, err := Read(body)
	if err != nil {
		return f, nil, nil, err
	}
	if d.APIVersion != APIVersion {
		return f, nil, nil, Problems{{Path: "apiVersion", Text: fmt.Sprintf("is %q, want %s", d.APIVersion, APIVersion)}}.Err()
	}
	spec, warnings, err = d.Into(&f, mode)
	return f, spec, warnings, err
}

// words are those of the rules about objects.
func words(mode Mode) strict.Options {
	return strict.Options{
		DropNull: true,
		Unknown: func(path, name string, known []string) (text string, ignored bool) {
			hint := strict.Hint(name, slices.Sorted(slices.Values(known)), true)
			switch {
			case slices.Contains(foreign, path):
				return "has no meaning here and is ignored", true
			case mode == Warn:
				return "is not a known field and is ignored" + hint, true
			}
			return "is not a known field" + hint, false
		},
		Wrong: func(v *strict.Value, t reflect.Type, _ error) string {
			want := strict.Want(t)
			switch kind := v.JSON().Kind(); {
			case t.Kind() == reflect.Struct && want == "an object":
				want += " with " + strings.Join(slices.Sorted(slices.Values(strict.Keys(t))), ", ")
			case t.Kind() == reflect.String && kind != '{' && kind != '[' && kind != 'n':
				want += ": put it in quotes"
			}
			return "is " + show(v.JSON()) + ", want " + want
		},
	}
}

// parse parses JSON or YAML. JSON is parsed as such, since YAML reads some of its texts differently.
func parse(text []byte) (*strict.Value, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		return parseYAML(text)
	}
	v, err := strict.JSON(text)
	if err == nil {
		return v, nil
	}
	if v, noYAML := parseYAML(text); noYAML == nil { // YAML has braces too
		return v, nil
	}
	return nil, fmt.Errorf("the object is not JSON: %w", err)
}

func parseYAML(text []byte) (*strict.Value, error) {
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
	err := yamltext.Check(&doc)
	if err == nil {
		var v *strict.Value
		if v, err = strict.YAML(doc.Content[0]); err == nil {
			return v, nil
		}
	}
	return nil, fmt.Errorf("the object is not accepted: %w", err)
}

// text returns the text of a member, empty if it is none.
func text(v *strict.Value, name string) (text string) {
	if member := v.Get(name); member != nil {
		_ = json.Unmarshal(member.JSON(), &text)
	}
	return text
}

// what names the kind of a value.
func what(v jsontext.Value) string {
	switch v.Kind() {
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
func show(v jsontext.Value) string {
	switch kind := v.Kind(); {
	case kind == '{' || kind == '[':
		return what(v)
	case len(v) > maxShown:
		return what(v) + " of " + strconv.Itoa(len(v)) + " bytes"
	}
	return string(v)
}
