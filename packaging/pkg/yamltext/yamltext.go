// Package yamltext reads YAML that somebody else has written, within bounds that YAML itself
// lacks: a short text whose aliases stand for long values can mean gigabytes, and one of nested
// lists more levels than any program reads. Manifests of packages and upgrades, declared
// objects, and the YAML in policies and outputs are read through it.
package yamltext

import (
	"bytes"
	"fmt"

	"gopkg.in/yaml.v3"
)

const (
	// MaxAliased bounds what the aliases of a text stand for, in bytes: as long as the longest
	// document that is accepted. Aliases save a person from repeating a few lines.
	MaxAliased = 256 << 10
	// MaxDepth bounds the levels of a text: more than a hundred are no configuration, and JSON
	// functions of stores refuse a thousand.
	MaxDepth = 100
)

// Unmarshal is yaml.Unmarshal within the bounds.
func Unmarshal(text []byte, v any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	if err := Check(&doc); err != nil || doc.IsZero() {
		return err
	}
	return doc.Decode(v)
}

// CheckText returns an error if one of the documents of a text is beyond the bounds. It leaves
// it to the caller to report a text that is not YAML.
func CheckText(text []byte) error {
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		if dec.Decode(&doc) != nil {
			return nil
		}
		if err := Check(&doc); err != nil {
			return err
		}
	}
}

// Check returns an error if a document is beyond the bounds. It is for documents that are not
// decoded by Unmarshal, before their aliases are followed.
func Check(doc *yaml.Node) error {
	m := meter{anchors: map[*yaml.Node]extent{}, left: MaxAliased}
	return m.walk(doc, 0)
}

// meter adds up what aliases stand for.
type meter struct {
	anchors map[*yaml.Node]extent // that aliases follow
	left    int
}

// extent is what a node takes once its aliases are followed.
type extent struct{ bytes, depth int }

// measuring is the extent of a node while it is measured, so that an alias below it finds that
// the node contains itself.
var measuring = extent{bytes: -1}

// walk goes through a document as it is written.
func (m *meter) walk(n *yaml.Node, depth int) error {
	below := 0
	if n.Kind == yaml.AliasNode {
		anchor, err := m.anchor(n)
		if err != nil {
			return err
		}
		if m.left -= anchor.bytes; m.left < 0 {
			return fmt.Errorf("line %d: the aliases up to *%s stand for more than %d bytes: repeat fewer or shorter values", n.Line, n.Value, MaxAliased)
		}
		below = anchor.depth
	}
	if depth+below > MaxDepth {
		return fmt.Errorf("line %d: has more than %d levels", n.Line, MaxDepth)
	}
	for _, child := range n.Content {
		if err := m.walk(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// anchor returns the extent of what an alias stands for.
func (m *meter) anchor(alias *yaml.Node) (extent, error) {
	known, ok := m.anchors[alias.Alias]
	switch {
	case ok && known == measuring:
		return known, fmt.Errorf("line %d: the value of *%s contains itself", alias.Line, alias.Value)
	case ok:
		return known, nil
	}
	m.anchors[alias.Alias] = measuring
	e, err := m.extent(alias.Alias)
	m.anchors[alias.Alias] = e
	return e, err
}

func (m *meter) extent(n *yaml.Node) (extent, error) {
	if n.Kind == yaml.AliasNode {
		return m.anchor(n)
	}
	e := extent{bytes: 1 + len(n.Value)}
	for _, child := range n.Content {
		inner, err := m.extent(child)
		if err != nil {
			return e, err
		}
		// Not beyond the bounds, so that the sum of sums stays a small number.
		e.bytes = min(e.bytes+inner.bytes, MaxAliased+1)
		e.depth = min(max(e.depth, inner.depth+1), MaxDepth+1)
	}
	return e, nil
}
