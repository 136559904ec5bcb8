package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// yamlOf converts JSON to YAML. The order of keys stays.
func yamlOf(text []byte) (*yaml.Node, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	n, err := yamlValue(dec)
	if err != nil {
		return nil, undecodable(err)
	}
	return n, nil
}

func yamlValue(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = yaml.MappingNode
		if v == '[' {
			n.Kind = yaml.SequenceNode
		}
		for dec.More() { // of an object: keys and values
			child, err := yamlValue(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := dec.Token() // its end
		return n, err
	case string:
		n.SetString(v)
	case nil:
		n.Value = "null"
	default: // a number, true or false
		n.Value = fmt.Sprint(v)
	}
	return n, nil
}

// writeYAML prints documents.
func writeYAML(w io.Writer, docs ...*yaml.Node) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	for _, d := range docs {
		if err := enc.Encode(d); err != nil {
			return err
		}
	}
	return enc.Close()
}

// keepKeys returns a mapping with some of the keys of n only.
func keepKeys(n *yaml.Node, keys ...string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if slices.Contains(keys, n.Content[i].Value) {
			out.Content = append(out.Content, n.Content[i], n.Content[i+1])
		}
	}
	return out
}

// sortKeys sorts the keys of all mappings in n, so that two texts differ only where their
// meanings do.
func sortKeys(n *yaml.Node) {
	type pair struct{ key, value *yaml.Node }
	var pairs []pair
	for i, child := range n.Content {
		sortKeys(child)
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			pairs = append(pairs, pair{n.Content[i-1], child})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.key.Value, b.key.Value) })
	for i, p := range pairs {
		n.Content[2*i], n.Content[2*i+1] = p.key, p.value
	}
}
