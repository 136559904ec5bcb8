package policy

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// YAML returns the body as YAML, with its fields in the same order.
func (r Rendered) YAML() ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(r.Body, &doc); err != nil { // JSON is YAML
		return nil, fmt.Errorf("policy %s as YAML: %w", r.ID, err)
	}
	plain(&doc)
	text, err := yaml.Marshal(&doc)
	if err != nil {
		return nil, fmt.Errorf("policy %s as YAML: %w", r.ID, err)
	}
	return text, nil
}

// plain removes the braces and quotes of JSON.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}
