package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/cli"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// serverSubcommands returns the page about muster.
func serverSubcommands() string {
	var b strings.Builder
	b.WriteString("# muster\n\nThe server, and the command line of operators. `muster completion --help` shows how a shell completes the commands.\n")
	root := cli.New("")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if c.Runnable() && c != root {
			subcommand(&b, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	flags(&b, "Flags of all commands", root.PersistentFlags().FlagUsages())
	return b.String()
}

func subcommand(b *strings.Builder, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	heading(b, c.CommandPath(), c.UseLine(), text)
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```text\n%s\n```\n", outdent(c.Example))
	}
	if c.HasAvailableLocalFlags() { // without --help, which all subcommands have
		fmt.Fprintf(b, "\n```text\n%s```\n", outdent(c.LocalFlags().FlagUsages()))
	}
}

func heading(b *strings.Builder, path, usage, text string) {
	fmt.Fprintf(b, "\n## %s {#%s}\n\n```text\n%s\n```\n\n```text\n%s\n```\n", path, strings.ReplaceAll(path, " ", "-"), usage, strings.TrimSpace(text))
}

func flags(b *strings.Builder, title, usages string) {
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s```\n", title, outdent(usages))
}

// outdent removes the spaces that all lines begin with.
func outdent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	least := -1
	for _, l := range lines {
		if indent := len(l) - len(strings.TrimLeft(l, " ")); strings.TrimSpace(l) != "" && (least < 0 || indent < least) {
			least = indent
		}
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(l[min(len(l), max(0, least)):], " ")
	}
	out := strings.Join(lines, "\n")
	if strings.HasSuffix(text, "\n") {
		out += "\n"
	}
	return out
}

// subcommandLine matches a line of the list of subcommands in a help text.
var subcommandLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}`)

// agentSubcommands returns the page about muster-agent and muster-watcher. They are no packages that
// can be imported, so their help texts are what describes them.
func agentSubcommands(ctx context.Context, root string) (string, error) {
	dir, err := os.MkdirTemp("", "muster-reference-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	var b strings.Builder
	b.WriteString("# muster-agent and muster-watcher\n\nThe agent of a host, and the watcher that it starts for an upgrade. Nobody needs to run the watcher by hand.\n")
	for _, program := range []string{"agent", "watcher"} {
		file := filepath.Join(dir, "muster-"+program)
		if err := toolchain.Run(ctx, io.Discard, root, nil, "go", "build", "-tags", toolchain.Tags, "-o", file, "./"+program); err != nil {
			return "", err
		}
		if err := helpTexts(ctx, &b, file, nil); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func helpTexts(ctx context.Context, b *strings.Builder, program string, path []string) error {
	c := exec.CommandContext(ctx, program, append(path, "--help")...)
	c.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", c.Args, err, out)
	}
	name := strings.Join(append([]string{filepath.Base(program)}, path...), " ")
	text := strings.ReplaceAll(string(out), program, filepath.Base(program)) // package flag prints the whole path
	before, list, _ := strings.Cut(text, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	if len(path) > 0 || list == "" {
		fmt.Fprintf(b, "\n## %s {#%s}\n\n```text\n%s\n```\n", name, strings.ReplaceAll(name, " ", "-"), strings.TrimSpace(text))
	} else {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(before))
	}
	for _, m := range subcommandLine.FindAllStringSubmatch(list, -1) {
		if m[1] == "help" || m[1] == "completion" {
			continue
		}
		if err := helpTexts(ctx, b, program, append(path[:len(path):len(path)], m[1])); err != nil {
			return err
		}
	}
	return nil
}
