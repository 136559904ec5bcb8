package packagecmd

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/manifest"
)

// exampleComponent describes a component with every key explained.
//
//go:embed example/component.yaml
var exampleComponent string

const exampleCommand = "muster package example > component.yaml"

func newExample() *cobra.Command {
	return &cobra.Command{
		Use:          "example",
		Short:        "Print the description of a component with every key explained",
		Example:      "  " + exampleCommand,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
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
	if err != nil {
		return nil, hinted(fmt.Errorf("--component: %w", err), exampleCommand)
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
		return refuse(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return refuse(errors.New("has more than one document, want one"))
	}
	if err := c.Validate(); err != nil {
		return refuse(err)
	}
	return &c, nil
}

// componentRows describes a component in the table of inspect.
func componentRows(c *manifest.Component) [][2]string {
	if c == nil {
		return nil
	}
	rows := [][2]string{{"component", c.Name}, {"runtime", c.Runtime}}
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
	return rows
}
