package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet/strict"
)

// yamlFile is an operator's file in YAML, of which a request is made. The Go type of its
// value decides how scalars are read, so that `version: 1.10` is the text 1.10 and not the
// number 1.1. Errors name the line.
type yamlFile struct {
	name string
	// what it holds, and field, where the request has it; empty: its keys are those of the
	// request.
	what, field string
	// example is the subcommand that prints a file to start from.
	example string
	tooLong string     // what to do about a file that is too long
	root    *yaml.Node // nil if there is no file
}

// maxYAMLFile is the size of the largest plan that the server accepts.
const maxYAMLFile = 1 << 20

// read reads the file, or standard input if it is -, into v.
func (f *yamlFile) read(cmd *cobra.Command, v any) error {
	name, b, err := readInput(cmd, f.name, maxYAMLFile, f.tooLong)
	if errors.As(err, new(*fs.PathError)) {
		return fmt.Errorf("%w: `%s` prints a %s to start from", err, f.example, f.what)
	}
	if f.name = name; err != nil {
		return err
	}
	return f.parse(b, v)
}

// readInput reads a file, or standard input if it is -, and returns its name for errors. tooLong says
// what to do about one that has more than most bytes.
func readInput(cmd *cobra.Command, file string, most int, tooLong string) (name string, b []byte, err error) {
	in := cmd.InOrStdin()
	name = file
	if file == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return name, nil, err
		}
		defer f.Close()
		in = f
	}
	b, err = io.ReadAll(io.LimitReader(in, int64(most)+1))
	switch {
	case err != nil:
		return name, nil, fmt.Errorf("%s: %w", name, err)
	case len(b) > most:
		return name, nil, fmt.Errorf("%s: has more than %d bytes%s", name, most, tooLong)
	}
	return name, b, nil
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
	value, err := strict.Typed(f.root)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	_, faults := value.Into(into, strict.Options{})
	var lines []string
	for _, fault := range faults {
		lines = append(lines, fmt.Sprintf("%s:%d: %s %s", f.name, cmp.Or(fault.Line, f.root.Line), cmp.Or(fault.Path, "the "+f.what), fault.Text))
	}
	if len(lines) > 0 {
		return errors.New(strings.Join(lines, "\n"))
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
		status: refused.status, field: fmt.Sprintf("%s:%d: %s", f.name, n.Line, cmp.Or(at, "the "+f.what)), message: refused.message, body: refused.body,
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
