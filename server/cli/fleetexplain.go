package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// schema is a schema of openapi.yaml, as far as objects of kind Fleet use it.
type schema struct {
	Ref         string    `yaml:"$ref"`
	Type        string    `yaml:"type"`
	Description string    `yaml:"description"`
	Format      string    `yaml:"format"`
	Enum        []string  `yaml:"enum"`
	Required    []string  `yaml:"required"`
	Example     string    `yaml:"example"`
	Properties  yaml.Node `yaml:"properties"`
	Items       *schema   `yaml:"items"`
	Values      *schema   `yaml:"additionalProperties"`
	AllOf       []*schema `yaml:"allOf"` // a reference with a description of its own
}

// schemaSet has the schemas of openapi.yaml by name.
type schemaSet map[string]yaml.Node

func readSchemas() (schemaSet, error) {
	var doc struct {
		Components struct {
			Schemas schemaSet `yaml:"schemas"`
		} `yaml:"components"`
	}
	err := yaml.Unmarshal(adminapi.Spec, &doc)
	return doc.Components.Schemas, err
}

// resolve follows a reference.
func (all schemaSet) resolve(s *schema) (*schema, error) {
	if len(s.AllOf) > 0 {
		out, err := all.resolve(s.AllOf[0])
		if err == nil {
			out.Description = s.Description
		}
		return out, err
	}
	name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/")
	if !ok {
		return s, nil
	}
	n := all[name]
	var out schema
	if err := n.Decode(&out); err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	return &out, nil
}

// field is a field of an object.
type field struct {
	name     string
	required bool
	*schema
}

// fields returns the fields of a schema, or of what its lists contain, in order.
func (all schemaSet) fields(s *schema) ([]field, error) {
	for s.Items != nil {
		var err error
		if s, err = all.resolve(s.Items); err != nil {
			return nil, err
		}
	}
	var out []field
	for i := 0; i+1 < len(s.Properties.Content); i += 2 {
		var property schema
		if err := s.Properties.Content[i+1].Decode(&property); err != nil {
			return nil, err
		}
		resolved, err := all.resolve(&property)
		if err != nil {
			return nil, err
		}
		name := s.Properties.Content[i].Value
		out = append(out, field{name, slices.Contains(s.Required, name), resolved})
	}
	return out, nil
}

// typeName returns the type of a schema as kubectl writes it, such as []string.
func (all schemaSet) typeName(s *schema) (string, error) {
	s, err := all.resolve(s)
	if err != nil {
		return "", err
	}
	switch {
	case s.Items != nil:
		name, err := all.typeName(s.Items)
		return "[]" + name, err
	case s.Values != nil:
		name, err := all.typeName(s.Values)
		return "map[string]" + name, err
	case s.Type == "object":
		return "Object", nil
	case s.Format == "date-time":
		return "time", nil
	}
	return s.Type, nil
}

// find returns the field at a path such as [spec strategy kind].
func (all schemaSet) find(path []string) (field, error) {
	root, err := all.resolve(&schema{Ref: "#/components/schemas/" + spec.Kind})
	if err != nil {
		return field{}, err
	}
	at := field{name: strings.ToLower(spec.Kind), schema: root}
	for i, name := range path {
		fields, err := all.fields(at.schema)
		if err != nil {
			return field{}, err
		}
		next := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if next < 0 {
			return field{}, noField(strings.Join(append([]string{"fleet"}, path[:i]...), "."), name, fields)
		}
		at = fields[next]
	}
	return at, nil
}

// noField is the error of a path to a field that does not exist. It names the nearest ones.
func noField(at, name string, fields []field) error {
	if len(fields) == 0 {
		return fmt.Errorf("%s has no field %q: it has no fields", at, name)
	}
	// Cobra finds the nearest of a command's subcommands.
	near := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, f := range fields {
		near.AddCommand(&cobra.Command{Use: f.name, Run: func(*cobra.Command, []string) {}})
	}
	names := each(fields, func(f field) string { return f.name })
	if found := near.SuggestionsFor(name); len(found) > 0 {
		return fmt.Errorf("%s has no field %q: did you mean %s? It has %s", at, name, strings.Join(found, " or "), strings.Join(names, ", "))
	}
	return fmt.Errorf("%s has no field %q: it has %s", at, name, strings.Join(names, ", "))
}

// fieldPath splits the argument of explain. It begins with the kind.
func fieldPath(text string) ([]string, error) {
	steps := strings.Split(strings.TrimSuffix(text, "."), ".")
	if kind := strings.ToLower(steps[0]); kind != "fleet" && kind != "fleets" {
		return nil, fmt.Errorf("there is no kind %q: want fleet, such as fleet.spec.strategy", steps[0])
	}
	return steps[1:], nil
}

func (a *client) newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain fleet[.FIELD…]",
		Short: "Explain the fields of objects of kind Fleet",
		Long: `Explain a field of objects of kind Fleet: its type, what it means, and the fields that it
has. The command needs no server.`,
		Example:           "  muster explain fleet\n  muster explain fleet.spec.strategy\n  muster explain fleet.spec --recursive",
		Args:              oneArg("the path of a field, such as fleet.spec.strategy"),
		ValidArgsFunction: completeFields,
	}
	recursive := cmd.Flags().Bool("recursive", false, "also the fields of fields")
	return running(a, cmd, func(_ *cobra.Command, args []string) (explained, error) {
		path, err := fieldPath(args[0])
		if err != nil {
			return explained{}, &usageError{err}
		}
		all, at, err := findField(path)
		if err != nil {
			return explained{}, err
		}
		return all.describe(at, strings.Join(path, "."), *recursive)
	}, printField)
}

// findField is find in the schemas of the API.
func findField(path []string) (all schemaSet, at field, err error) {
	if all, err = readSchemas(); err == nil {
		at, err = all.find(path)
	}
	return all, at, err
}

// explained is a field as explain prints it.
type explained struct {
	Path        string      `json:"path,omitempty"` // below the object
	Name        string      `json:"name"`
	Type        string      `json:"type"`
	Required    bool        `json:"required,omitempty"`
	Description string      `json:"description,omitempty"`
	Enum        []string    `json:"enum,omitempty"`
	Example     string      `json:"example,omitempty"`
	Fields      []explained `json:"fields,omitempty"`
}

func (all schemaSet) describe(f field, path string, recursive bool) (explained, error) {
	out := explained{Path: path, Name: f.name, Required: f.required, Description: strings.TrimSpace(f.Description), Enum: f.Enum, Example: f.Example}
	var err error
	if out.Type, err = all.typeName(f.schema); err != nil {
		return out, err
	}
	fields, err := all.fields(f.schema)
	if err != nil {
		return out, err
	}
	for _, below := range fields {
		var one explained
		if recursive {
			one, err = all.describe(below, strings.TrimPrefix(path+"."+below.name, "."), true)
		} else {
			one, err = all.summarize(below)
		}
		if err != nil {
			return out, err
		}
		out.Fields = append(out.Fields, one)
	}
	return out, nil
}

// summarize describes a field without its fields.
func (all schemaSet) summarize(f field) (explained, error) {
	name, err := all.typeName(f.schema)
	return explained{Name: f.name, Type: name, Required: f.required, Description: strings.TrimSpace(f.Description), Enum: f.Enum}, err
}

func printField(w io.Writer, f explained) {
	fmt.Fprintf(w, "KIND:     %s\nVERSION:  %s\n", spec.Kind, spec.APIVersion)
	if f.Path != "" {
		fmt.Fprintf(w, "\nFIELD:    %s <%s>%s\n", f.Path, f.Type, requiredWord(f))
	}
	fmt.Fprint(w, "\nDESCRIPTION:\n")
	printWrapped(w, "    ", firstOf(f.Description, "none"))
	if len(f.Enum) > 0 {
		printWrapped(w, "    ", "One of "+strings.Join(f.Enum, ", ")+".")
	}
	if f.Example != "" {
		printWrapped(w, "    ", "Such as "+f.Example)
	}
	if len(f.Fields) > 0 {
		fmt.Fprint(w, "\nFIELDS:\n")
		printFields(w, "  ", f.Fields)
	}
}

func printFields(w io.Writer, indent string, fields []explained) {
	for _, f := range fields {
		fmt.Fprintf(w, "%s%s <%s>%s\n", indent, f.Name, f.Type, requiredWord(f))
		printWrapped(w, indent+"  ", f.Description)
		printFields(w, indent+"  ", f.Fields)
	}
}

func requiredWord(f explained) string {
	if f.Required {
		return " (required)"
	}
	return ""
}

// textWidth is how wide explained texts are: they fit a terminal of 100 columns.
const textWidth = 96

// printWrapped prints a text in lines of textWidth, each with an indent.
func printWrapped(w io.Writer, indent, text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(indent)+len([]rune(line))+1+len([]rune(word)) > textWidth {
			fmt.Fprintln(w, indent+line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		fmt.Fprintln(w, indent+line)
	}
}

// completeFields completes the path of a field.
func completeFields(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	dot := strings.LastIndex(typed, ".")
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if dot < 0 {
		return []string{"fleet"}, directive
	}
	before := typed[:dot]
	path, err := fieldPath(before)
	if err != nil {
		return nil, directive
	}
	all, at, err := findField(path)
	if err != nil {
		return nil, directive
	}
	fields, err := all.fields(at.schema)
	if err != nil {
		return nil, directive
	}
	return each(fields, func(f field) string {
		summary, _, _ := strings.Cut(f.Description, ". ")
		return before + "." + f.name + "\t" + summary
	}), directive
}
