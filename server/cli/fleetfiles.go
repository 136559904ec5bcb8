package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/rollout/spec"
)

// maxObjectsFile bounds a file of objects: more than a hundred of the largest that the server
// accepts.
const maxObjectsFile = 32 << 20

// declaration is an object of kind Fleet in a file. The server reads its text, so that every
// client gets the same errors; node finds the lines that they are about.
type declaration struct {
	file       string
	document   int // counted from 1; 0: the file has one
	node       *yaml.Node
	text       []byte // YAML
	apiVersion string
	name       string
}

// objectFiles are the flags of subcommands that read objects from files.
type objectFiles struct {
	files     []string
	recursive bool
	validate  string
}

func (o *objectFiles) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "file", "f", nil, "file in YAML or JSON, folder, or - for standard input; repeat it for more (required)")
	f.BoolVarP(&o.recursive, "recursive", "R", false, "also read the folders below a folder")
	f.StringVar(&o.validate, "validate", "strict", "what happens to unknown fields: strict refuses them, warn leaves them out")
	_ = cmd.RegisterFlagCompletionFunc("validate", completeWords([]string{"strict", "warn"}))
}

// check returns a usage error for wrong flags.
func (o *objectFiles) check() error {
	if len(o.files) == 0 {
		return &usageError{errors.New("--file is missing: `muster fleets example` prints an object to start from")}
	}
	if o.validate != "" && o.validate != "strict" && o.validate != "warn" {
		return &usageError{fmt.Errorf("--validate is %q, want strict or warn", o.validate)}
	}
	return nil
}

// readsStdin reports whether the objects come from standard input, which then answers no question.
func (o *objectFiles) readsStdin() bool { return slices.Contains(o.files, "-") }

// read returns the objects in all files, in order. No two have the same name.
func (o *objectFiles) read(cmd *cobra.Command) ([]*declaration, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var all []*declaration
	for _, name := range o.files {
		paths, err := o.expand(name)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			found, err := readObjects(cmd, path)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no objects: `muster fleets example` prints one to start from", strings.Join(o.files, ", "))
	}
	first := map[string]*declaration{}
	for _, d := range all {
		if other := first[d.name]; other != nil {
			return nil, fmt.Errorf("%s: fleet/%s is in %s too: leave one of them out", d.at(d.node), d.name, other.at(other.node))
		}
		first[d.name] = d
	}
	return all, nil
}

// expand returns the files that a --file names: itself, or those of a folder.
func (o *objectFiles) expand(name string) (paths []string, err error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: `muster fleets example` prints an object to start from", err)
	case !info.IsDir():
		return []string{name}, nil
	}
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != name && !o.recursive {
				return fs.SkipDir
			}
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

func readObjects(cmd *cobra.Command, name string) ([]*declaration, error) {
	name, b, err := readInput(cmd, name, maxObjectsFile, ": divide it")
	if err != nil {
		return nil, err
	}
	return parseObjects(name, b)
}

// parseObjects returns the objects in a text of YAML documents, which JSON is too. A FleetList
// is the objects that it lists.
func parseObjects(name string, text []byte) ([]*declaration, error) {
	var roots []*declaration
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for number := 1; ; number++ {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, notYAML(name, err)
		}
		if n := doc.Content[0]; n.Kind != yaml.ScalarNode || n.Tag != "!!null" { // an empty document
			roots = append(roots, &declaration{file: name, document: number, node: n})
		}
	}
	var all []*declaration
	for _, root := range roots {
		if len(roots) == 1 {
			root.document = 0
		}
		for _, n := range listed(root.node) {
			d := &declaration{file: name, document: root.document, node: n}
			if err := d.identify(); err != nil {
				return nil, err
			}
			all = append(all, d)
		}
	}
	return all, nil
}

// listed returns the items of a list of objects, or n itself.
func listed(n *yaml.Node) []*yaml.Node {
	kind, items := child(n, "kind"), child(n, "items")
	if kind != nil && kind.Value == spec.Kind+"List" && items != nil && items.Kind == yaml.SequenceNode {
		return items.Content
	}
	return []*yaml.Node{n}
}

// identify reads what the subcommand needs to know of the object, and checks no more.
func (d *declaration) identify() (err error) {
	if d.node.Kind != yaml.MappingNode {
		return d.errorAt(d.node, "the document is not a mapping, want keys such as apiVersion, kind, metadata, spec")
	}
	scalar := func(path ...string) string {
		n := d.node
		for _, step := range path {
			if n = child(n, step); n == nil {
				return ""
			}
		}
		return n.Value
	}
	d.apiVersion, d.name = scalar("apiVersion"), scalar("metadata", "name")
	kind := scalar("kind")
	switch group, _, _ := strings.Cut(d.apiVersion, "/"); {
	case d.apiVersion == "" && kind == "":
		return d.errorAt(d.node, "apiVersion and kind are missing, want %s and %s", spec.APIVersion, spec.Kind)
	case group != spec.Group || kind != spec.Kind:
		return d.errorAt(d.node, "the object is of kind %s of %s, want %s of %s", cmp.Or(kind, "\"\""), cmp.Or(d.apiVersion, "\"\""), spec.Kind, spec.APIVersion)
	case d.name == "":
		return d.errorAt(d.node, "metadata.name is missing")
	}
	d.text, err = yaml.Marshal(d.node)
	return err
}

// at names the place of a node: the file, its line, and of a file with several documents the
// number of the document.
func (d *declaration) at(n *yaml.Node) string {
	where := fmt.Sprintf("%s:%d", d.file, n.Line)
	if d.document > 0 {
		where += fmt.Sprintf(" (document %d)", d.document)
	}
	return where
}

func (d *declaration) errorAt(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s: %s", d.at(n), fmt.Sprintf(format, args...))
}

// errorPath matches the path of a field at the beginning of a line of an error.
var errorPath = regexp.MustCompile(`^(?:\[request body\.?)?((?:apiVersion|kind|metadata|spec|status)\b[^\s:]*?)\]?:? `)

// locate adds file and line to a refusal of the object: to each of its lines, which are about
// one field each.
func (d *declaration) locate(err error) error {
	var refused *refusal
	if !errors.As(err, &refused) || isAboutNoObject(refused) {
		return err
	}
	var lines []string
	for _, line := range strings.Split(refused.Error(), "\n") {
		lines = append(lines, d.locateText(line))
	}
	return errors.New(strings.Join(lines, "\n"))
}

// isAboutNoObject reports whether a refusal would be the same for every object.
func isAboutNoObject(r *refusal) bool {
	return r.status >= http.StatusInternalServerError || r.status == http.StatusUnauthorized || r.status == http.StatusForbidden
}

// locateText adds file and line to a text that may begin with the path of a field.
func (d *declaration) locateText(text string) string {
	n := d.node
	if m := errorPath.FindStringSubmatch(text); m != nil {
		n = d.find(m[1])
	}
	return fmt.Sprintf("%s: %s", d.at(n), text)
}

// find returns the node at a path such as spec.limits.per[0].max, or the last one on the way to
// it that the file has. Keys may contain points and slashes.
func (d *declaration) find(path string) *yaml.Node {
	n := d.node
	for path != "" {
		next, rest := step(n, path)
		if next == nil {
			break
		}
		n, path = next, rest
	}
	return n
}

// step returns the child of a node that path begins with, and the rest of the path. Of a
// mapping it is the node of the key, if that is the end: its line is where people look.
func step(n *yaml.Node, path string) (next *yaml.Node, rest string) {
	path = strings.TrimPrefix(path, ".")
	switch n.Kind {
	case yaml.SequenceNode:
		index, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(index)
		if !ok || err != nil || i < 0 || i >= len(n.Content) {
			return nil, ""
		}
		return n.Content[i], rest
	case yaml.MappingNode:
		best := -1
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			rest, ok := strings.CutPrefix(strings.TrimPrefix(path, "["), key)
			if ok && key != "" && (rest == "" || strings.ContainsAny(rest[:1], ".[]")) && (best < 0 || len(key) > len(n.Content[best].Value)) {
				best = i
			}
		}
		if best < 0 {
			return nil, ""
		}
		key := n.Content[best]
		rest := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(path, "["), key.Value), "]")
		if rest == "" {
			return key, ""
		}
		return n.Content[best+1], rest
	}
	return nil, ""
}
