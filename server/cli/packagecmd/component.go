package packagecmd

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// exampleComponent describes a component with every key explained.
//
//go:embed example/component.yaml
var exampleComponent string

const exampleCommand = "muster package example"

func newExample() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print the description of a component with every key explained",
		Example: "  " + exampleCommand + " > component.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), exampleComponent)
			return err
		},
	}
}

// readComponent reads the description of a component, or returns nil if file is empty.
func readComponent(file string) (*manifest.Component, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // it is the package of an agent
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hinted(fmt.Errorf("--component: %w", err), "%s > %s", exampleCommand, file)
	}
	if err != nil {
		return nil, fmt.Errorf("--component: %w", err)
	}
	defer f.Close()
	refuse := func(err error) (*manifest.Component, error) {
		return nil, hinted(fmt.Errorf("--component: %s: %w", file, err), exampleCommand)
	}
	var c manifest.Component
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	err = dec.Decode(&c)
	if errors.Is(err, io.EOF) {
		return refuse(errors.New("is empty"))
	}
	if err != nil {
		return refuse(yamlProblem(err))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return refuse(errors.New("has more than one document, want one"))
	}
	if err := c.Validate(); err != nil {
		return refuse(err)
	}
	return &c, nil
}

var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type (\S+)`)
	wrongValue = regexp.MustCompile(`cannot unmarshal !!\w+ (.*) into \S+`)
)

// yamlProblem returns a YAML error with the keys that are allowed instead of the names of Go
// types.
func yamlProblem(err error) error {
	t, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return fmt.Errorf("not YAML, %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	text := strings.Join(t.Errors, "; ")
	for _, typ := range []reflect.Type{reflect.TypeFor[manifest.Component](), reflect.TypeFor[manifest.ConfigFile](), reflect.TypeFor[manifest.Check]()} {
		text = unknownKey.ReplaceAllStringFunc(text, func(found string) string {
			if m := unknownKey.FindStringSubmatch(found); m[2] == typ.String() {
				return fmt.Sprintf("there is no key %s, want one of %s", m[1], strings.Join(yamlKeys(typ), ", "))
			}
			return found
		})
	}
	return errors.New(wrongValue.ReplaceAllString(text, "$1 is not a value of this key"))
}

// yamlKeys returns the keys of a struct in a YAML file.
func yamlKeys(typ reflect.Type) []string {
	var keys []string
	for i := range typ.NumField() {
		key, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
		keys = append(keys, key)
	}
	return keys
}

// uncheckedSettings returns a note for the author of a component whose runtime this program
// does not know, or "". It is no mistake: agents may have more runtimes.
func uncheckedSettings(c *manifest.Component) string {
	if c == nil || slices.Contains(runtimes.Names(), c.Runtime) {
		return ""
	}
	return fmt.Sprintf("this program does not know the runtime %q, so hosts are the first to check its settings; it knows %s", c.Runtime, strings.Join(runtimes.Names(), ", "))
}

// componentRows describes a component in the table of inspect.
func componentRows(c *manifest.Component) [][2]string {
	if c == nil {
		return nil
	}
	rows := [][2]string{{"component", c.Name}, {"runtime", c.Runtime}}
	if note := uncheckedSettings(c); note != "" {
		rows = append(rows, [2]string{"note", note})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Settings)) {
		value, err := json.Marshal(c.Settings[key])
		if err != nil { // Validate has encoded it
			value = []byte("?")
		}
		rows = append(rows, [2]string{"  " + key, string(value)})
	}
	if c.DataDir != "" {
		rows = append(rows, [2]string{"data folder", c.DataDir})
	}
	for _, f := range c.ConfigFiles {
		mode, err := manifest.ParseMode(f.Mode)
		if err != nil { // Validate has parsed it
			continue
		}
		text := fmt.Sprintf("%s from %s, mode %04o", f.Path, f.From, mode)
		if f.Owner != "" || f.Group != "" {
			text += ", owner " + f.Owner + ":" + f.Group
		}
		rows = append(rows, [2]string{"configuration", text})
	}
	if len(c.ServerFiles) > 0 {
		rows = append(rows, [2]string{"server may write", strings.Join(c.ServerFiles, ", ")})
	}
	if c.Reload {
		rows = append(rows, [2]string{"new configuration", "is read without a restart"})
	}
	if h := c.Hooks; h != nil && h.User != "" {
		rows = append(rows, [2]string{"hooks run as", h.User + ":" + h.Group})
	}
	program := func(h manifest.Hook) string { return fmt.Sprintf("%q, at most %s", h.Exec, h.Bound()) }
	c.Programs(func(field string, h manifest.Hook) {
		if name, ok := strings.CutPrefix(field, "hooks."); ok {
			rows = append(rows, [2]string{"hook " + name, program(h)})
		}
	})
	if len(c.StatePaths) > 0 {
		rows = append(rows, [2]string{"state", strings.Join(c.StatePaths, ", ")})
	}
	for _, m := range c.Migrations {
		back := "there is no way back"
		if m.Down != nil {
			back = "back " + program(*m.Down)
		}
		rows = append(rows, [2]string{"migration " + m.Version, program(m.Up) + "; " + back})
	}
	return rows
}
