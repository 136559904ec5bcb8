package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/app"
)

// configurationPage returns the page about the configuration files, which explain themselves.
func configurationPage(root string) (string, error) {
	agent, err := os.ReadFile(filepath.Join(root, "agent", "config", "agent.yml"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("# Configuration\n\nEvery key may be left out. A key that is not known, or has a wrong value, is refused with its name.\n\n"+
		"## The server {#server}\n\n`/etc/muster/server.yml`, or the file that `muster server --config` names. `muster server --example-config` prints this:\n\n```yaml\n%s```\n\n"+
		"## The agent {#agent}\n\n`agent.yml` in the agent's folder:\n\n```yaml\n%s```\n", app.Example, agent), nil
}

// metric matches the definition of a metric: Name and Help of options, or a description.
var metric = regexp.MustCompile(`(?:Name: |NewDesc\()"(muster_[a-z_]+)",\s+(?:Help: )?"((?:[^"\\]|\\.)*)"(?:, \[\]string\{([^}]*)\})?`)

// metricsPage returns the page about the metrics that the server exports.
func metricsPage(root string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "server", "metrics", "*.go"))
	if err != nil {
		return "", err
	}
	var rows []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
			rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", m[1], m[2]))
		}
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("no metric was found in server/metrics")
	}
	slices.Sort(rows)
	return "# Metrics\n\nThe admin API serves them at `/metrics`, to whoever has an admin key, in the text format of Prometheus. " +
		"Those of Go's runtime and of the process come in addition. [Monitoring](../monitoring.md) has a dashboard and alerts.\n\n| metric | what it is |\n|---|---|\n" + strings.Join(rows, ""), nil
}

// operation is what the page says of a call.
type operation struct {
	Tags        []string
	Summary     string
	Description string
	Parameters  []struct {
		Ref         string `yaml:"$ref"`
		Name, In    string
		Description string
		Required    bool
		Schema      struct{ Type string }
	}
}

// methods are those of the API, in the order of the page.
var methods = []string{"get", "post", "put", "patch", "delete"}

// apiPage returns the page about the admin API.
func apiPage() (string, error) {
	var spec struct {
		Info struct{ Description string }
		Tags []struct{ Name string }
		// A path also has parameters of all its calls, which is why the operations are decoded one by one.
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(adminapi.Spec, &spec); err != nil {
		return "", fmt.Errorf("openapi.yaml: %w", err)
	}
	type call struct {
		method, path string
		operation
	}
	byTag := map[string][]call{}
	for path, operations := range spec.Paths {
		for _, method := range methods {
			node, ok := operations[method]
			if !ok {
				continue
			}
			c := call{method: method, path: path}
			if err := node.Decode(&c.operation); err != nil {
				return "", fmt.Errorf("openapi.yaml: %s %s: %w", method, path, err)
			}
			if len(c.Tags) != 1 {
				return "", fmt.Errorf("openapi.yaml: %s %s has %d tags, want one", method, path, len(c.Tags))
			}
			byTag[c.Tags[0]] = append(byTag[c.Tags[0]], c)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Admin API\n\n%s\nA server serves its description at `/api/openapi.yaml`, from which clients can be generated, and which has the types of all bodies and answers.\n", spec.Info.Description)
	for _, tag := range spec.Tags {
		calls := byTag[tag.Name]
		slices.SortFunc(calls, func(a, b call) int {
			return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(slices.Index(methods, a.method), slices.Index(methods, b.method)))
		})
		fmt.Fprintf(&b, "\n## %s {#%s}\n", strings.ToUpper(tag.Name[:1])+tag.Name[1:], tag.Name)
		for _, c := range calls {
			fmt.Fprintf(&b, "\n**`%s %s`** — %s.", strings.ToUpper(c.method), c.path, strings.TrimSuffix(c.Summary, "."))
			if c.Description != "" {
				fmt.Fprintf(&b, " %s", strings.TrimSpace(strings.ReplaceAll(c.Description, "\n", " ")))
			}
			b.WriteString("\n")
			var rows []string
			for _, p := range c.Parameters {
				if p.In == "query" {
					row := fmt.Sprintf("- `%s` (%s)", p.Name, p.Schema.Type)
					if text := strings.Join(strings.Fields(p.Description), " "); text != "" {
						row += ": " + text
					}
					rows = append(rows, row+"\n")
				}
				if name := filepath.Base(p.Ref); p.Ref != "" {
					rows = append(rows, fmt.Sprintf("- `%s`\n", name))
				}
			}
			if len(rows) > 0 {
				fmt.Fprintf(&b, "\n%s", strings.Join(rows, ""))
			}
		}
	}
	return plainHTML.Replace(b.String()), nil
}

// plainHTML keeps what looks like a tag or an expression from acting in a page of the site.
var plainHTML = strings.NewReplacer("<", "&lt;", "{{", "&#123;&#123;")
