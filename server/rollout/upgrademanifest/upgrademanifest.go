// Package upgrademanifest reads upgrade manifests: files in which the makers of a
// version describe the upgrade to it, so that operators of rollouts can refer to the
// manifest.
//
// The files are in one folder as <profile>/<id>.yaml and are read on demand, so that a
// new one needs no restart. A manifest of a component can name templates of configuration
// files, which lie beside it. The folder example has one of each with every key explained.
package upgrademanifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

const (
	// maxSize bounds a file. A recovery plan of many pages has 50 kB.
	maxSize = 256 << 10
	// maxFiles bounds a listing, which reads all files.
	maxFiles = 1_000
	// maxNames is how many names a not-found error lists.
	maxNames = 20
)

const extension = ".yaml"

// Example is a manifest, and ExampleTemplate a template of a configuration file, with
// everything explained.
var (
	//go:embed example/edge/2.0.0.yaml
	Example string
	//go:embed example/edge/web-2.0.0/web.conf.tmpl
	ExampleTemplate string
)

// nameForm restricts names to plain file names on every system.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Dir is a folder of upgrade manifests. If it does not exist, there are none. It
// implements rollout.Manifests and configfile.Manifests.
type Dir struct{ Path string }

// document is the content of a file. It has no key to acknowledge the risk, because
// whoever starts a rollout must do so.
type document struct {
	Description   string     `yaml:"description"`
	Version       string     `yaml:"version"`
	SourceVersion string     `yaml:"source_version"`
	SourceURI     string     `yaml:"source_uri"`
	Artifacts     []artifact `yaml:"artifacts"`
	Migration     migration  `yaml:"migration"`

	Component         string                 `yaml:"component"`
	ConfigFiles       []fleet.ConfigTemplate `yaml:"config_files"`
	VariableOverrides map[string]string      `yaml:"variable_overrides"`
}

type artifact struct {
	OS       string        `yaml:"os"`
	Arch     string        `yaml:"arch"`
	Runtime  fleet.Runtime `yaml:"runtime"`
	URL      string        `yaml:"url"`
	Checksum string        `yaml:"checksum"`
	Size     int64         `yaml:"size"`
}

type migration struct {
	Type         fleet.MigrationType `yaml:"type"`
	RecoveryPlan string              `yaml:"recovery_plan"`
}

// Get reads one manifest.
func (d Dir) Get(_ context.Context, profile, id string) (plan.UpgradeManifest, error) {
	m, _, err := d.open(profile, id)
	return m, err
}

// Templates reads the templates of one manifest.
func (d Dir) Templates(_ context.Context, profile, id string) (*configfile.Templates, error) {
	_, templates, err := d.open(profile, id)
	return templates, err
}

func (d Dir) open(profile, id string) (none plan.UpgradeManifest, _ *configfile.Templates, _ error) {
	for _, name := range []struct{ field, value string }{{"profile", profile}, {"upgrade_id", id}} {
		if !nameForm.MatchString(name.value) {
			return none, nil, fleet.FieldError("body.plan."+name.field, "is %q, want letters, digits, dots, dashes and underscores, the first a letter or digit", name.value)
		}
	}
	root, err := os.OpenRoot(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil, fleet.Errorf(fleet.NotFound, "there is no upgrade manifest %s/%s, nor any other: the server's folder for them, %s, does not exist: create it with the file %s/%s (`muster manifests example` prints one)", profile, id, d.Path, profile, id+extension)
	}
	if err != nil {
		return none, nil, unreadable("the folder of upgrade manifests", err)
	}
	defer root.Close()
	m, templates, err := read(root, profile, id)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil, fleet.Errorf(fleet.NotFound, "there is no upgrade manifest %s/%s: %s in the server's folder %s (`muster manifests example` prints one)", profile, id, existing(root), d.Path)
	}
	return m, templates, err
}

// List reads all manifests, sorted by profile and id. An invalid one is listed with its
// error, and does not affect the others.
func (d Dir) List(ctx context.Context) ([]plan.UpgradeManifest, error) {
	root, err := os.OpenRoot(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return []plan.UpgradeManifest{}, nil
	}
	if err != nil {
		return nil, unreadable("the folder of upgrade manifests", err)
	}
	defer root.Close()
	names, err := list(root)
	if err != nil {
		return nil, err
	}
	if len(names) > maxFiles {
		return nil, fleet.Errorf(fleet.TooLarge, "there are %d upgrade manifests, which are more than %d: move old ones to another folder", len(names), maxFiles)
	}
	out := make([]plan.UpgradeManifest, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		profile, id, _ := strings.Cut(name, "/")
		m, _, err := read(root, profile, id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			m = plan.UpgradeManifest{Profile: profile, ID: id, Error: err.Error()}
		}
		out = append(out, m)
	}
	return out, nil
}

// list returns the names profile/id of all files, sorted. Files with other names, such
// as a README, are skipped.
func list(root *os.Root) ([]string, error) {
	files, err := fs.Glob(root.FS(), "*/*"+extension)
	if err != nil {
		return nil, fmt.Errorf("list upgrade manifests: %w", err)
	}
	var names []string
	for _, file := range files {
		name := strings.TrimSuffix(file, extension)
		profile, id := path.Split(name)
		if nameForm.MatchString(strings.TrimSuffix(profile, "/")) && nameForm.MatchString(id) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// existing lists the names of manifests for an error.
func existing(root *os.Root) string {
	names, err := list(root)
	switch {
	case err != nil || len(names) == 0:
		return "there is none at all"
	case len(names) > maxNames:
		return fmt.Sprintf("there are %s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return "there are " + strings.Join(names, ", ")
}

// read reads a manifest and its templates.
func read(root *os.Root, profile, id string) (none plan.UpgradeManifest, _ *configfile.Templates, _ error) {
	name := path.Join(profile, id+extension)
	called := "the upgrade manifest " + name
	raw, err := readFile(root, name, called, maxSize)
	if err != nil {
		return none, nil, err
	}
	m, err := parse(raw)
	if err != nil {
		return none, nil, fleet.Errorf(fleet.Invalid, "%s cannot be used: %w", called, err)
	}
	m.Profile, m.ID = profile, id
	texts := map[string]string{}
	for _, f := range m.ConfigFiles {
		if _, ok := texts[f.Template]; ok {
			continue
		}
		text, err := readFile(root, path.Join(profile, f.Template), fmt.Sprintf("the template %s of %s", f.Template, called), configfile.MaxTemplate)
		if errors.Is(err, fs.ErrNotExist) {
			return none, nil, fleet.Errorf(fleet.Invalid, "%s cannot be used: there is no template %s in the folder %s", called, f.Template, profile)
		}
		if err != nil {
			return none, nil, err
		}
		texts[f.Template] = string(text)
	}
	templates, err := configfile.Parse(m.ConfigFiles, texts)
	if err != nil {
		return none, nil, fleet.Errorf(fleet.Invalid, "%s cannot be used: %w", called, err)
	}
	m.ContentHash = contentHash(id+extension, raw, texts)
	templates.Component, templates.Hash, templates.Overrides = m.Component, m.ContentHash, m.VariableOverrides
	return m, templates, nil
}

// contentHash returns the SHA-256 of a manifest's bytes, comments included, because people
// decide by the comments. With templates it is that of what `sha256sum` prints in the folder
// for the manifest and then the templates, sorted by name.
func contentHash(name string, raw []byte, texts map[string]string) string {
	if len(texts) > 0 {
		list := fmt.Sprintf("%x  %s\n", sha256.Sum256(raw), name)
		for _, template := range slices.Sorted(maps.Keys(texts)) {
			list += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(texts[template])), template)
		}
		raw = []byte(list)
	}
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readFile opens files only below root, so that neither a name nor a link leads out of it.
func readFile(root *os.Root, name, called string, limit int64) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, unreadable(called, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fleet.Errorf(fleet.Invalid, "%s is no file", called) // a pipe would never end
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, unreadable(called, err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, unreadable(called, err)
	case int64(len(raw)) > limit:
		return nil, fleet.Errorf(fleet.Invalid, "%s has more than %d bytes", called, limit)
	}
	return raw, nil
}

// unreadable is the error for files of operators that the server cannot read, because of
// their rights, a link that leads elsewhere, or a broken disk. They are not the server's own,
// so it is no internal error.
func unreadable(what string, err error) error {
	return fleet.Errorf(fleet.Invalid, "%s cannot be read: %w: the server needs the right to read it, and follows no link that leads out of the folder", what, err)
}

// parse parses a file.
func parse(raw []byte) (plan.UpgradeManifest, error) {
	var (
		none plan.UpgradeManifest
		doc  document
	)
	if err := yamltext.CheckText(raw); err != nil {
		return none, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return none, errors.New("it is empty")
	} else if err != nil {
		return none, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return none, errors.New("it has a second document after ---")
	}
	if doc.Version == "" {
		return none, errors.New("version is missing: name the version to reach, such as 1.2.3")
	}
	if _, err := manifest.ParseVersion(doc.Version); err != nil {
		return none, err
	}
	if doc.SourceVersion != "" {
		if _, err := manifest.ParseVersion(doc.SourceVersion); err != nil {
			return none, fmt.Errorf("source_version: %w", err)
		}
	}
	if err := doc.checkComponent(); err != nil {
		return none, err
	}
	m := plan.UpgradeManifest{
		Description: doc.Description, Version: doc.Version, Source: doc.SourceVersion, SourceURI: doc.SourceURI,
		Migration: fleet.Migration{Type: doc.Migration.Type, RecoveryPlan: doc.Migration.RecoveryPlan},
		Component: doc.Component, ConfigFiles: doc.ConfigFiles, VariableOverrides: doc.VariableOverrides,
	}
	for _, a := range doc.Artifacts {
		m.Artifacts = append(m.Artifacts, fleet.Artifact(a))
	}
	return m, nil
}

// checkComponent checks what only upgrades of components have.
func (doc *document) checkComponent() error {
	if doc.Component == "" {
		if len(doc.ConfigFiles)+len(doc.VariableOverrides) > 0 {
			return errors.New("component is missing: config_files and variable_overrides belong to the component that they name")
		}
		return nil
	}
	if err := manifest.ValidComponentName(doc.Component); err != nil {
		return fmt.Errorf("component: %w", err)
	}
	if err := fleet.CheckVariables(doc.VariableOverrides); err != nil {
		return fmt.Errorf("variable_overrides: %w", err)
	}
	for i, f := range doc.ConfigFiles {
		if path.Ext(f.Template) == extension && !strings.Contains(f.Template, "/") {
			return fmt.Errorf("config_files[%d].template: is %q, which would be an upgrade manifest itself: put it into a folder", i, f.Template)
		}
	}
	return configfile.CheckFiles(doc.ConfigFiles)
}
