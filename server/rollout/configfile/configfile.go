// Package configfile renders the configuration files that the server writes to hosts with a
// version of a component, and compares them with those of the version before.
//
// Package upgrademanifest reads the templates, which lie beside an upgrade manifest. Rollouts
// render them for every host when they are previewed, so that the preview's hash covers what
// each host gets, and send the files with the UPGRADE. See DESIGN.md for what a template sees.
package configfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Bounds of templates, and of what they make for one host.
const (
	// MaxTemplate bounds a template in bytes. Real ones have a few kilobytes; larger files
	// are data, which belongs in the package.
	MaxTemplate = 64 << 10
	// MaxOutput bounds the files of a host together, in bytes. An action has them, and the
	// answer to a check-in.
	MaxOutput = 256 << 10
	// maxSteps bounds the work for the files of a host: the parts of templates that are
	// evaluated, and the bytes that functions make. They take some 50 ms. Nothing else bounds
	// {{range 1000000000}}.
	maxSteps = 100_000
)

// Templates are the parsed templates of an upgrade manifest, and what else decides about the
// files. The zero value has none.
type Templates struct {
	// Component is the component whose files they are.
	Component string
	// Hash is the upgrade manifest's content hash, which covers the templates.
	Hash string
	// Overrides are the upgrade manifest's variables. They override those of policies and of plans.
	Overrides map[string]string

	files []file // by path
}

type file struct {
	fleet.ConfigTemplate
	template *template.Template
}

// templateName is the form of a template's name: a path below the folder of the upgrade manifest.
// Errors have it before a colon and the line.
var templateName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)

// validTemplateName returns an error if a template cannot have the name.
func validTemplateName(name string) error {
	if !templateName.MatchString(name) || !fs.ValidPath(name) {
		return fmt.Errorf("is %q, want the path of a file below the folder of the upgrade manifest, such as 2.0.0/web.conf.tmpl, of letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// CheckFiles returns an error that names all invalid fields of an upgrade manifest's config_files.
func CheckFiles(files []fleet.ConfigTemplate) error {
	if len(files) > manifest.MaxConfigFiles {
		return fmt.Errorf("config_files has %d entries, want at most %d", len(files), manifest.MaxConfigFiles)
	}
	var errs []error
	seen := map[string]bool{}
	for i, f := range files {
		check := func(key string, err error) {
			if err != nil {
				errs = append(errs, fmt.Errorf("config_files[%d].%s: %w", i, key, err))
			}
		}
		check("path", manifest.ValidHostPath(f.Path))
		if seen[f.Path] {
			check("path", fmt.Errorf("%q occurs twice", f.Path))
		}
		seen[f.Path] = true
		check("template", validTemplateName(f.Template))
		_, err := manifest.ParseMode(f.Mode)
		check("mode", err)
		check("owner", manifest.ValidAccount(f.Owner))
		check("group", manifest.ValidAccount(f.Group))
	}
	return errors.Join(errs...)
}

// Parse parses the templates of files. texts has them by name.
func Parse(files []fleet.ConfigTemplate, texts map[string]string) (*Templates, error) {
	if err := CheckFiles(files); err != nil {
		return nil, err
	}
	parsed := map[string]*template.Template{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		t, err := parseTemplate(name, texts[name])
		if err != nil {
			errs = append(errs, err)
		}
		parsed[name] = t
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t := &Templates{}
	for i, f := range files {
		if parsed[f.Template] == nil {
			return nil, fmt.Errorf("config_files[%d].template: there is no template %s", i, f.Template)
		}
		t.files = append(t.files, file{f, parsed[f.Template]})
	}
	slices.SortFunc(t.files, func(a, b file) int { return cmp.Compare(a.Path, b.Path) })
	return t, nil
}

// Empty reports whether the upgrade manifest has no configuration files.
func (t *Templates) Empty() bool { return len(t.files) == 0 }

// Render returns the files for a host, sorted by path. The same values yield the same files.
func (t *Templates) Render(v Values) ([]agentapi.RenderedFile, error) {
	b := &budget{steps: maxSteps, output: MaxOutput}
	out := make([]agentapi.RenderedFile, 0, len(t.files))
	for _, f := range t.files {
		content, err := b.execute(f.template, v)
		if err != nil {
			return nil, explain(f.Template, v, err)
		}
		sum := sha256.Sum256([]byte(content))
		out = append(out, agentapi.RenderedFile{
			Path: f.Path, SHA256: hex.EncodeToString(sum[:]), Content: content, Mode: f.Mode, Owner: f.Owner, Group: f.Group,
		})
	}
	return out, nil
}

var (
	errSteps  = fmt.Errorf("takes more than %d steps, for all files together: make its loops shorter", maxSteps)
	errOutput = fmt.Errorf("makes more than %d bytes, with the files before it: put large files into the package", MaxOutput)
	errText   = errors.New("makes a file that is not UTF-8: put binary files into the package")
)

// budget is what is left for the files of a host.
type budget struct{ steps, output int }

func (b *budget) spend(n int) error {
	if b.steps -= n; b.steps < 0 {
		return errSteps
	}
	return nil
}

func (b *budget) execute(t *template.Template, v Values) (string, error) {
	t, err := t.Clone() // its functions count for this host
	if err != nil {
		return "", err
	}
	out := &bounded{left: &b.output}
	if err := t.Funcs(b.functions()).Execute(out, v); err != nil {
		return "", err
	}
	if !utf8.Valid(out.Bytes()) { // JSON could not carry it
		return "", errText
	}
	return out.String(), nil
}

// bounded is a buffer that refuses more than is left.
type bounded struct {
	bytes.Buffer
	left *int
}

func (w *bounded) Write(p []byte) (int, error) {
	if *w.left -= len(p); *w.left < 0 {
		return 0, errOutput
	}
	return w.Buffer.Write(p)
}

// executionError is the form of the errors of text/template: file, line, column, template,
// context, cause.
var executionError = regexp.MustCompile(`(?s)^template: (.*?:\d+):\d+: executing ".*?" at <(.*?)>: (.*)$`)

// explain adds file, line and host to the error of an execution.
func explain(name string, v Values, err error) error {
	host := v["Host"]["hostname"]
	for _, cause := range []error{errSteps, errOutput, errText} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s %w (host %s)", name, cause, host)
		}
	}
	m := executionError.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("%s: %w (host %s)", name, err, host)
	}
	hint := ""
	if strings.Contains(m[3], "no entry for key") {
		hint = `: set it, or use {{index}}, which is empty then`
		if strings.HasPrefix(strings.TrimPrefix(m[2], "$"), ".Vars") {
			hint = ": set it in variables of the component in the host's policy, in variables of the plan, or in variable_overrides of the upgrade manifest"
		}
	}
	return fmt.Errorf("%s: %s: %s (host %s)%s", m[1], m[2], m[3], host, hint)
}
