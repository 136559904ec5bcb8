package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// unitTimeout bounds the quick tests of a package.
const unitTimeout = "5m"

// Unit runs the quick tests of every package that starts no other program: without the race
// detector, and with -short, so without Elasticsearch and whatever else takes long.
func Unit(ctx context.Context, root string, out io.Writer) error {
	pkgs, err := listPackages(ctx, root, out)
	if err != nil {
		return err
	}
	return unit(ctx, root, out, slices.Concat(pkgs.raced, pkgs.plain))
}

func unit(ctx context.Context, root string, out io.Writer, these []string) error {
	args := append([]string{"go", "test", "-short", "-vet=off", "-tags=" + toolchain.Tags, "-timeout=" + unitTimeout}, these...)
	return toolchain.RunGroup(ctx, out, root, nil, args...)
}

// Check formats, lints, vets and tests what has changed since the branch left main, and what
// imports it directly. It answers in a minute or two; Test asks everything.
func Check(ctx context.Context, root string, out io.Writer) error {
	files, err := changedFiles(ctx, root)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		fmt.Fprintln(out, "Nothing has changed since main.")
		return nil
	}
	pkgs, err := listPackages(ctx, root, out)
	if err != nil {
		return err
	}
	changed := changedPackages(files, slices.Concat(pkgs.raced, pkgs.plain, pkgs.harness))
	if len(changed) > 0 {
		if err := checkGo(ctx, root, out, pkgs, changed); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, "ui/") }) {
		return nil
	}
	if err := lintUI(ctx, root, out); err != nil {
		return err
	}
	return testUI(ctx, root, out)
}

func checkGo(ctx context.Context, root string, out io.Writer, pkgs packages, changed []string) error {
	lint := append([]string{"go", "tool", "-modfile=" + toolsModfile, "golangci-lint"}, "fmt")
	if err := toolchain.RunGroup(ctx, out, root, nil, append(lint, changed...)...); err != nil {
		return err
	}
	lint[len(lint)-1] = "run" // which vets as well
	if err := toolchain.RunGroup(ctx, out, root, nil, append(lint, changed...)...); err != nil {
		return err
	}
	importers, err := importersOf(ctx, root, out, changed)
	if err != nil {
		return err
	}
	quick := slices.Concat(pkgs.raced, pkgs.plain)
	these := slices.DeleteFunc(slices.Concat(changed, importers), func(p string) bool { return !slices.Contains(quick, p) })
	if len(these) == 0 {
		return nil
	}
	return unit(ctx, root, out, these)
}

// changedFiles returns the files that differ from the commit at which the branch left main, committed
// or not, relative to root. Removed files are among them.
func changedFiles(ctx context.Context, root string) ([]string, error) {
	git := func(args ...string) ([]string, error) {
		c := exec.CommandContext(ctx, "git", args...)
		c.Dir = root
		text, err := c.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("git %s: %s", strings.Join(args, " "), bytes.TrimSpace(exit.Stderr))
		}
		return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == 0 }), err
	}
	base, err := git("merge-base", "HEAD", "main")
	if err != nil {
		if base, err = git("merge-base", "HEAD", "origin/main"); err != nil {
			return nil, fmt.Errorf("find where the branch left main: %w", err)
		}
	}
	differ, err := git("diff", "--name-only", "-z", base[0])
	if err != nil {
		return nil, err
	}
	untracked, err := git("ls-files", "--others", "--exclude-standard", "-z")
	return append(differ, untracked...), err
}

// changedPackages returns those of all that have one of files in their folder, or in testdata below it.
func changedPackages(files, all []string) (changed []string) {
	for _, f := range files {
		dir, _, _ := strings.Cut(f, "/testdata/")
		if dir == f {
			dir = path.Dir(f)
		}
		if p := "./" + dir; slices.Contains(all, p) && !slices.Contains(changed, p) {
			changed = append(changed, p)
		}
	}
	return changed
}

// importersOf returns the packages whose code or tests import one of changed.
func importersOf(ctx context.Context, root string, out io.Writer, changed []string) (importers []string, err error) {
	const format = `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	c := exec.CommandContext(ctx, "go", "list", "-tags="+toolchain.Tags, "-f", format, "./...")
	c.Dir, c.Stderr = root, out
	list, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("list the imports: %w", err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(list), module, "./")) {
		names := strings.Fields(line)
		if !slices.Contains(changed, names[0]) && slices.ContainsFunc(names[1:], func(n string) bool { return slices.Contains(changed, n) }) {
			importers = append(importers, names[0])
		}
	}
	return importers, nil
}
