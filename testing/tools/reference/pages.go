package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/api/adminapi"
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
	files, err := filepath.Glob(filepath.Join(root, "server", "insight", "metrics", "*.go"))
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
		return "", fmt.Errorf("no metric was found in server/insight/metrics")
	}
	slices.Sort(rows)
	return "# Metrics\n\nThe admin API serves them at `/metrics`, to whoever has an admin key, in the text format of Prometheus. " +
		"Those of Go's runtime and of the process come in addition. [Monitoring](../monitoring.md) has a dashboard and alerts.\n\n| metric | what it is |\n|---|---|\n" + strings.Join(rows, ""), nil
}

// apiPage returns the page about the operations of the admin API.
func apiPage() string {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	var b strings.Builder
	fmt.Fprintf(&b, "# Admin API\n\n%s\nA server serves its description at `/api/openapi.yaml`, from which clients can be generated, and which has the types of all bodies and answers.\n", adminapi.About)
	for _, area := range adminapi.Areas {
		calls := slices.DeleteFunc(slices.Clone(adminapi.Calls()), func(c *adminapi.Call) bool { return c.Area != area })
		slices.SortFunc(calls, func(a, b *adminapi.Call) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(slices.Index(methods, a.Method), slices.Index(methods, b.Method)))
		})
		fmt.Fprintf(&b, "\n## %s {#%s}\n", strings.ToUpper(string(area[:1]))+string(area[1:]), area)
		for _, c := range calls {
			fmt.Fprintf(&b, "\n**`%s %s`** — %s.", c.Method, c.Path, strings.TrimSuffix(c.Summary, "."))
			if c.Description != "" {
				fmt.Fprintf(&b, " %s", c.Description)
			}
			b.WriteString("\n")
			before := "\n"
			for _, p := range c.Params {
				if !p.InQuery() {
					continue
				}
				fmt.Fprintf(&b, "%s- `%s` (%s)", before, p.Name, p.Kind())
				if p.Doc != "" {
					fmt.Fprintf(&b, ": %s", p.Doc)
				}
				b.WriteString("\n")
				before = ""
			}
		}
	}
	return plainHTML.Replace(b.String())
}

// plainHTML keeps what looks like a tag or an expression from acting in a page of the site.
var plainHTML = strings.NewReplacer("<", "&lt;", "{{", "&#123;&#123;")
