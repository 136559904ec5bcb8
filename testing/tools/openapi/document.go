package main

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

const header = "# `go generate ./server/api/adminapi` writes this file from the tables of package adminapi: do not edit it.\n"

// document returns openapi.yaml. dir is the folder of package adminapi.
func document(dir string) ([]byte, error) {
	src, err := newSource(dir)
	if err != nil {
		return nil, err
	}
	all := &schemas{source: src, named: newObject(), met: map[string]reflect.Type{}}
	refused, err := all.of("", reflect.TypeFor[adminapi.Error]())
	if err != nil {
		return nil, err
	}
	var paths []string
	byPath := map[string]*object{}
	for _, c := range adminapi.Calls() {
		if byPath[c.Path] == nil {
			byPath[c.Path] = newObject()
			paths = append(paths, c.Path)
		}
		op, err := all.operation(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.ID, err)
		}
		byPath[c.Path].set(strings.ToLower(c.Method), op)
	}
	operations := newObject()
	for _, p := range paths {
		operations.set(p, byPath[p])
	}
	var tags []*object
	for _, a := range adminapi.Areas {
		tags = append(tags, newObject("name", string(a)))
	}
	var security []*object
	for _, name := range []string{"apiKey", "bearer", "basic", "session"} {
		security = append(security, newObject(name, none))
	}
	doc := newObject(
		"openapi", "3.0.3",
		"info", newObject("title", "Muster admin API", "version", "1", "description", adminapi.About, "license", newObject("name", "Apache-2.0")),
		"security", security,
		"tags", tags,
		"paths", operations,
		"components", newObject(
			"securitySchemes", newObject(
				"apiKey", newObject("type", "apiKey", "in", "header", "name", "Authorization", "description", "ApiKey base64(id:secret)"),
				"bearer", newObject("type", "http", "scheme", "bearer", "description", "base64(id:secret) of an admin key"),
				"basic", newObject("type", "http", "scheme", "basic", "description", "An admin key's id is the name, its secret the password. Changes need the header kbn-xsrf."),
				"session", newObject("type", "apiKey", "in", "cookie", "name", "__Host-muster_session"),
			),
			"responses", newObject("Error", answer("Refused. message names the field or file and says what to do.", "application/json", refused)),
			"schemas", all.named,
		))
	var b bytes.Buffer
	b.WriteString(header)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err = e.Encode(&doc.Node)
	return b.Bytes(), err
}

// none is a list that is written although it is empty.
var none = &object{yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}}

func answer(text, mediaType string, schema *object) *object {
	return newObject("description", text, "content", newObject(mediaType, newObject("schema", schema)))
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (s *schemas) operation(c *adminapi.Call) (*object, error) {
	op := newObject("operationId", c.ID, "tags", []string{string(c.Area)})
	if c.Admission == adminapi.Stranger {
		op.set("security", none)
	}
	op.set("summary", c.Summary).set("description", c.Description)
	params, err := s.parameters(c)
	if err != nil {
		return nil, err
	}
	op.set("parameters", params)
	if c.In() != reflect.TypeFor[adminapi.None]() {
		schema, err := s.body(c.In())
		if err != nil {
			return nil, err
		}
		content := newObject(or(c.BodyType, "application/json"), newObject("schema", schema))
		if c.YAML {
			content.set("application/yaml", newObject("schema", schema))
		}
		body := newObject()
		if !c.OptionalBody {
			body.set("required", true)
		}
		op.set("requestBody", body.set("content", content))
	}
	out, err := s.body(c.Out())
	if err != nil {
		return nil, err
	}
	status := "200"
	if c.Status != 0 {
		status = strconv.Itoa(c.Status)
	}
	mediaType := or(c.AnswerType, "application/json")
	responses := newObject(status, answer(or(c.Answer, adminapi.DefaultAnswer), mediaType, out))
	if c.Created != "" {
		responses.set("201", answer(c.Created, mediaType, out))
	}
	if r := c.Refusal; r != nil {
		schema, err := s.of("", reflect.TypeOf(r.Body))
		if err != nil {
			return nil, err
		}
		responses.set(strconv.Itoa(r.Status), answer(r.Doc, "application/json", schema))
	}
	return op.set("responses", responses.set("default", newObject("$ref", "#/components/responses/Error"))), nil
}

func (s *schemas) body(t reflect.Type) (*object, error) {
	switch t {
	case reflect.TypeFor[adminapi.Text]():
		return newObject("type", "string"), nil
	case reflect.TypeFor[adminapi.Binary]():
		return newObject("type", "string", "format", "binary"), nil
	case reflect.TypeFor[adminapi.Empty]():
		return s.ref("Empty"), nil
	}
	return s.of("", t)
}

// parameters returns those of the path, in its order, and then those of the table.
func (s *schemas) parameters(c *adminapi.Call) ([]*object, error) {
	var all []adminapi.Param
	rest := c.Path
	for {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			break
		}
		name, after, _ := strings.Cut(after, "}")
		rest = after
		p := adminapi.Param{Name: name, In: "path"}
		if i := slices.IndexFunc(c.Params, func(p adminapi.Param) bool { return p.In == "path" && p.Name == name }); i >= 0 {
			p = c.Params[i]
		}
		p.Required = true
		all = append(all, p)
	}
	for _, p := range c.Params {
		if p.In != "path" {
			all = append(all, p)
		}
	}
	var out []*object
	for _, p := range all {
		schema, err := s.of("", p.Type())
		if err != nil {
			return nil, err
		}
		more := newObject("example", p.Example)
		if err := constrain(more, p.Schema); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		o := newObject("name", p.Name, "in", or(p.In, "query"))
		if p.Required {
			o.set("required", true)
		}
		out = append(out, o.set("description", p.Doc).set("schema", beside(schema, more)))
	}
	return out, nil
}
