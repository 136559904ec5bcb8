package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// object is a mapping of YAML in a given order.
type object struct{ yaml.Node }

func newObject(pairs ...any) *object {
	o := &object{yaml.Node{Kind: yaml.MappingNode}}
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// set adds a key. A value that is empty is left out.
func (o *object) set(key string, value any) *object {
	var n yaml.Node
	switch v := value.(type) {
	case *object:
		if v == nil {
			return o
		}
		n = v.Node
	case []*object:
		n.Kind = yaml.SequenceNode
		for _, item := range v {
			n.Content = append(n.Content, &item.Node)
		}
	case string:
		if v == "" {
			return o
		}
		n.SetString(v)
	default:
		if err := n.Encode(value); err != nil {
			panic(fmt.Sprintf("%s: %v", key, err)) // it is a literal of this package, or comes from YAML
		}
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 && value != any(none) {
		return o
	}
	k := yaml.Node{}
	k.SetString(key)
	o.Content = append(o.Content, &k, &n)
	return o
}

// schemas makes the schemas of Go types.
type schemas struct {
	*source
	named *object // by name, in the order in which they were met
	met   map[string]reflect.Type
}

// made are the schemas of types that say nothing of their JSON.
var made = map[string]func() *object{
	"Duration": func() *object {
		return newObject("type", "string", "description", "Go duration", "example", "10m0s")
	},
	"Empty": func() *object { return newObject("type", "object") },
	"AgentSelection": func() *object {
		return newObject(
			"description", `At most 10000 ids, or a query in KQL. A query selects exactly the agents that the list shows for it (includeInactive is showInactive of the list), at most 100000. "*" selects all. An empty query is refused.`,
			"oneOf", []*object{newObject("type", "array", "items", newObject("type", "string"), "maxItems", 10000), newObject("type", "string")})
	},
}

// ref returns a reference to a schema in made.
func (s *schemas) ref(name string) *object {
	if _, ok := s.met[name]; !ok {
		s.met[name] = nil
		s.named.set(name, made[name]())
	}
	return newObject("$ref", "#/components/schemas/"+name)
}

// of returns the schema of a type: a reference, if the type has a name in this module. at is
// the type's name, or the path of a type without one.
func (s *schemas) of(at string, t reflect.Type) (*object, error) {
	switch t {
	case reflect.TypeFor[fleet.Duration]():
		return s.ref("Duration"), nil
	case reflect.TypeFor[time.Time]():
		return newObject("type", "string", "format", "date-time"), nil
	case reflect.TypeFor[json.RawMessage]():
		return newObject(), nil
	case reflect.TypeFor[[]byte]():
		return newObject("type", "string", "format", "byte"), nil
	}
	if t.Kind() == reflect.Pointer {
		return s.of(at, t.Elem())
	}
	if t.PkgPath() != "" {
		return s.reference(t)
	}
	return s.content(at, t, "")
}

// reference returns a reference to the schema of a type with a name. A type of another package
// that has no name in package adminapi is what it is made of.
func (s *schemas) reference(t reflect.Type) (*object, error) {
	key, err := s.key(t)
	if err != nil {
		return nil, err
	}
	name := s.aliases[key]
	if name == "" && t.PkgPath() != reflect.TypeFor[adminapi.Call]().PkgPath() {
		if t.Kind() == reflect.Struct {
			return nil, fmt.Errorf("%s has no name in package adminapi", t)
		}
		return s.content(key, t, "")
	}
	return s.refer(or(name, t.Name()), key, t, "")
}

// refer returns a reference to the schema of a type under a name, in which one of the required
// fields may be optional.
func (s *schemas) refer(name, key string, t reflect.Type, optional string) (*object, error) {
	if was, ok := s.met[name]; !ok {
		s.met[name] = t
		// Its place is before those of the types that it has.
		place := newObject()
		word := yaml.Node{}
		word.SetString(name)
		s.named.Content = append(s.named.Content, &word, &place.Node)
		body, err := s.content(key, t, optional)
		if err != nil {
			return nil, err
		}
		if values := s.values[key]; values != nil {
			body.set("enum", values)
		}
		full := newObject("description", s.comments[key])
		full.Content = append(full.Content, body.Content...)
		place.Content = full.Content
	} else if was != t {
		return nil, fmt.Errorf("two types have the name %s: %s and %s", name, was, t)
	}
	return newObject("$ref", "#/components/schemas/"+name), nil
}

func (s *schemas) content(at string, t reflect.Type, optional string) (*object, error) {
	switch t.Kind() {
	case reflect.String:
		return newObject("type", "string"), nil
	case reflect.Bool:
		return newObject("type", "boolean"), nil
	case reflect.Int:
		return newObject("type", "integer"), nil
	case reflect.Int64:
		return newObject("type", "integer", "format", "int64"), nil
	case reflect.Float32:
		return newObject("type", "number"), nil
	case reflect.Float64:
		return newObject("type", "number", "format", "double"), nil
	case reflect.Interface:
		return newObject(), nil
	case reflect.Slice:
		items, err := s.of(at, t.Elem())
		if err != nil {
			return nil, err
		}
		if t.Elem().Kind() == reflect.Pointer {
			items.set("nullable", true)
		}
		return newObject("type", "array", "items", items), nil
	case reflect.Map:
		values, err := s.of(at, t.Elem())
		if err != nil {
			return nil, err
		}
		out := newObject("type", "object")
		if len(values.Content) == 0 {
			return out.set("additionalProperties", true), nil
		}
		return out.set("additionalProperties", values), nil
	case reflect.Struct:
		required, properties := []string(nil), newObject()
		if err := s.fields(at, t, &required, properties); err != nil {
			return nil, err
		}
		required = slices.DeleteFunc(required, func(name string) bool { return name == optional })
		return newObject("type", "object", "required", required, "properties", properties), nil
	}
	return nil, fmt.Errorf("%s: a %s has no schema", at, t)
}

func (s *schemas) fields(at string, t reflect.Type, required *[]string, properties *object) error {
	for f := range t.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() || f.Tag.Get("schema") == "-":
			continue
		case f.Anonymous && name == "":
			key, err := s.key(f.Type)
			if err == nil {
				err = s.fields(key, f.Type, required, properties)
			}
			if err != nil {
				return err
			}
			continue
		}
		optional := strings.Contains(rest, "omit")
		if !optional {
			*required = append(*required, name)
		}
		where := at + "." + f.Name
		schema, err := s.field(where, f, !optional && f.Type.Kind() == reflect.Pointer)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		properties.set(name, schema)
	}
	return nil
}

// field returns the schema of a field: that of its type, with the field's comment and tags. The
// tag schema has keywords of JSON schemas, nullable, object or array for the type of a
// json.RawMessage, the name of one of the schemas in made, or - for what is only stored; as=NAME,optional=FIELD
// is a schema of its own, in which a required field may be absent. The tag example has YAML.
func (s *schemas) field(at string, f reflect.StructField, nullable bool) (*object, error) {
	tag := f.Tag.Get("schema")
	var schema *object
	var err error
	if name, ok := strings.CutPrefix(tag, "ref="); ok {
		name, tag, _ = strings.Cut(name, ",")
		if made[name] == nil {
			return nil, fmt.Errorf("there is no schema %s", name)
		}
		schema = s.ref(name)
	} else if name, ok := strings.CutPrefix(tag, "as="); ok {
		name, optional, _ := strings.Cut(name, ",optional=")
		var key string
		if key, err = s.key(f.Type); err == nil {
			schema, err = s.refer(name, key, f.Type, optional)
		}
		tag = ""
	} else {
		schema, err = s.of(at, f.Type)
	}
	if err != nil {
		return nil, err
	}
	more := newObject("description", s.comments[at])
	if err := constrain(more, tag); err != nil {
		return nil, err
	}
	if nullable {
		more.set("nullable", true)
	}
	if text := f.Tag.Get("example"); text != "" {
		var example yaml.Node
		if err := yaml.Unmarshal([]byte(text), &example); err != nil {
			return nil, fmt.Errorf("example: %w", err)
		}
		more.set("example", example.Content[0])
	}
	of := bare(f.Type)
	values := s.values[of.PkgPath()+"."+of.Name()]
	if short := of == reflect.TypeFor[fleet.Duration]() || values != nil; short && len(more.Content) > 0 && schema.Content[0].Value == "$ref" {
		schema = newObject("type", "string") // what is short is repeated
		if values != nil {
			schema.set("enum", values)
		}
	}
	return beside(schema, more), nil
}

func bare(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// beside adds keywords to a schema. What stands beside a reference is ignored, so the reference
// moves into allOf.
func beside(schema, more *object) *object {
	if len(more.Content) == 0 {
		return schema
	}
	if schema.Content != nil && schema.Content[0].Value == "$ref" {
		schema = newObject("allOf", []*object{schema})
	}
	schema.Content = append(schema.Content, more.Content...)
	return schema
}

// constrain adds the keywords of a schema tag, such as minimum=1,default=20.
func constrain(schema *object, tag string) error {
	if tag == "" {
		return nil
	}
	for part := range strings.SplitSeq(tag, ",") {
		key, text, _ := strings.Cut(part, "=")
		switch key {
		case "nullable":
			schema.set("nullable", true)
		case "events":
			types, err := eventTypes()
			if err != nil {
				return err
			}
			schema.set("x-extensible-enum", types)
		case "object":
			schema.set("type", "object").set("additionalProperties", true)
		case "array":
			schema.set("type", "array").set("items", newObject("type", "string", "nullable", true))
		case "enum":
			schema.set("enum", strings.Split(text, "|"))
		case "minimum", "maximum", "minItems", "maxItems", "maxLength", "maxProperties":
			n, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("%s is %q, want a number", key, text)
			}
			schema.set(key, n)
		case "default":
			var value any
			if err := yaml.Unmarshal([]byte(text), &value); err != nil {
				return fmt.Errorf("default: %w", err)
			}
			schema.set(key, value)
		default:
			return fmt.Errorf("the tag schema has the unknown word %q", key)
		}
	}
	return nil
}
