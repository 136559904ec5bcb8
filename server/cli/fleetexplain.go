package cli

import (
	"bytes"
	"cmp"
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

// decoded decodes a part of openapi.yaml. It is part of this program, so that an error is a mistake in it.
func decoded[T any](n interface{ Decode(any) error }) (out T) {
	if err := n.Decode(&out); err != nil {
		panic(fmt.Errorf("openapi.yaml: %w", err))
	}
	return out
}

func readSchemas() schemaSet {
	return decoded[struct {
		Components struct {
			Schemas schemaSet `yaml:"schemas"`
		} `yaml:"components"`
	}](yaml.NewDecoder(bytes.NewReader(adminapi.Spec))).Components.Schemas
}

// resolve follows a reference.
func (all schemaSet) resolve(s schema) schema {
	if len(s.AllOf) > 0 {
		out := all.resolve(*s.AllOf[0])
		out.Description = s.Description
		return out
	}
	name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/")
	if !ok {
		return s
	}
	return decoded[schema](new(all[name]))
}

// field is a field of an object.
type field struct {
	name     string
	required bool
	schema
}

// fields returns the fields of a schema, or of what its lists contain, in order.
func (all schemaSet) fields(s schema) (out []field) {
	for s.Items != nil {
		s = all.resolve(*s.Items)
	}
	for i := 0; i+1 < len(s.Properties.Content); i += 2 {
		name := s.Properties.Content[i].Value
		out = append(out, field{name, slices.Contains(s.Required, name), all.resolve(decoded[schema](s.Properties.Content[i+1]))})
	}
	return out
}

// typeName returns the type of a schema as kubectl writes it, such as []string.
func (all schemaSet) typeName(s schema) string {
	s = all.resolve(s)
	switch {
	case s.Items != nil:
		return "[]" + all.typeName(*s.Items)
	case s.Values != nil:
		return "map[string]" + all.typeName(*s.Values)
	case s.Type == "object":
		return "Object"
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// find returns the field at a path such as [spec strategy kind].
func (all schemaSet) find(path []string) (field, error) {
	at := field{name: strings.ToLower(spec.Kind), schema: all.resolve(schema{Ref: "#/components/schemas/" + spec.Kind})}
	for i, name := range path {
		fields := all.fields(at.schema)
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
		all := readSchemas()
		at, err := all.find(path)
		return all.describe(at, strings.Join(path, "."), *recursive), err
	}, printField)
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

// describe describes a field and its fields, and with recursive also theirs.
func (all schemaSet) describe(f field, path string, recursive bool) explained {
	out := all.summarize(f)
	out.Path, out.Example = path, f.Example
	for _, below := range all.fields(f.schema) {
		one := all.summarize(below)
		if recursive {
			one = all.describe(below, strings.TrimPrefix(path+"."+below.name, "."), true)
		}
		out.Fields = append(out.Fields, one)
	}
	return out
}

// summarize describes a field without its fields.
func (all schemaSet) summarize(f field) explained {
	return explained{Name: f.name, Type: all.typeName(f.schema), Required: f.required, Description: strings.TrimSpace(f.Description), Enum: f.Enum}
}

func printField(w io.Writer, f explained) {
	fmt.Fprintf(w, "KIND:     %s\nVERSION:  %s\n", spec.Kind, spec.APIVersion)
	if f.Path != "" {
		fmt.Fprintf(w, "\nFIELD:    %s <%s>%s\n", f.Path, f.Type, requiredWord(f))
	}
	fmt.Fprint(w, "\nDESCRIPTION:\n")
	printWrapped(w, "    ", cmp.Or(f.Description, "none"))
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
	all := readSchemas()
	at, err := all.find(path)
	if err != nil {
		return nil, directive
	}
	return each(all.fields(at.schema), func(f field) string {
		summary, _, _ := strings.Cut(f.Description, ". ")
		return before + "." + f.name + "\t" + summary
	}), directive
}
