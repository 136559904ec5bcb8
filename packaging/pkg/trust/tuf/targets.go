package tuf

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// limitFields are the names of the fields for [Limits].
type limitFields struct{ floor, downgrade string }

// The specification allows further fields in the signed part of a targets file, under the
// signature. The limits of agents are there; componentsField has an object for each
// component, by its name, with the component's limits and targets.
//
// The targets of components are not among the others because agents refuse a file with a
// target whose name they do not understand: those that know no components would install
// nothing any more.
const (
	componentsField = "x-muster-components"
	// componentTargets is the field for the targets in the object of a component. They have
	// the form of the file's own targets.
	componentTargets = "targets"
)

var (
	agentLimits     = limitFields{"x-muster-floor", "x-muster-allow-downgrade"}
	componentLimits = limitFields{"floor", "allow-downgrade"}
)

const hashName = "sha512"

// formats are the supported archive formats.
var formats = []string{"tar.gz", "zip"}

// Target describes one archive, as the publishers sign it.
type Target struct {
	// Component is the component's name; empty: it is an agent's package.
	Component string `json:",omitempty"`

	Version  string // full version, as in the archive's name
	OS, Arch string // Go's names
	Format   string // "tar.gz" or "zip"
	Size     int64  // bytes
	Unpacked int64  // bytes of what it holds
	SHA512   string // hexadecimal, lower case
}

// FileName returns the target's name.
func (t Target) FileName() string {
	if t.Component != "" {
		return manifest.ComponentArchiveName(t.Component, t.Version, t.OS, t.Arch, t.Format)
	}
	return manifest.ArchiveName(t.Version, t.OS, t.Arch, t.Format)
}

// custom is the application-specific part of a target.
type custom struct {
	Version      string `json:"version"`
	OS           string `json:"os"`
	Arch         string `json:"arch"`
	UnpackedSize int64  `json:"unpacked_size"`
}

var (
	sha512Form   = regexp.MustCompile(`^[0-9a-f]{128}$`)
	platformForm = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
)

// Validate returns an error that names the first invalid field.
func (t Target) Validate() error {
	if t.Component != "" {
		if err := manifest.ValidComponentName(t.Component); err != nil {
			return fmt.Errorf("component: %w", err)
		}
	}
	if _, err := manifest.ParseVersion(t.Version); err != nil {
		return err
	}
	switch {
	case !platformForm.MatchString(t.OS):
		return fmt.Errorf("os: is %q, want one of Go's names such as linux", t.OS)
	case !platformForm.MatchString(t.Arch):
		return fmt.Errorf("arch: is %q, want one of Go's names such as amd64", t.Arch)
	case !slices.Contains(formats, t.Format):
		return fmt.Errorf("format: is %q, want one of %s", t.Format, strings.Join(formats, ", "))
	case t.Size < 1:
		return fmt.Errorf("size: is %d bytes, want more", t.Size)
	case t.Unpacked < 1:
		return fmt.Errorf("unpacked_size: is %d bytes, want more", t.Unpacked)
	case !sha512Form.MatchString(t.SHA512):
		return fmt.Errorf("sha512: is %q, want 128 lower-case hexadecimal digits", t.SHA512)
	}
	return nil
}

// targetOf reads an entry of the field at a path, which is a component's unless component is
// empty. Its name and its custom part both give version and platform, and must agree; so
// must its name and the component.
func targetOf(at, component, name string, file *metadata.TargetFiles) (Target, error) {
	field := at + "." + name
	var c custom
	if file.Custom == nil {
		return Target{}, malformed(RoleTargets, field+".custom", "is missing")
	}
	if err := json.Unmarshal(*file.Custom, &c); err != nil {
		return Target{}, malformed(RoleTargets, field+".custom", "%v", err)
	}
	t := Target{
		Component: component, Version: c.Version, OS: c.OS, Arch: c.Arch, Size: file.Length, Unpacked: c.UnpackedSize,
		SHA512: hex.EncodeToString(file.Hashes[hashName]),
	}
	for _, t.Format = range formats {
		if strings.HasSuffix(name, "."+t.Format) {
			break
		}
	}
	if err := t.Validate(); err != nil {
		return Target{}, malformed(RoleTargets, field, "%v", err)
	}
	if t.FileName() != name {
		return Target{}, malformed(RoleTargets, field+".custom", "describes %s", t.FileName())
	}
	return t, nil
}

// limitsOf reads the limits from fields, whose names follow prefix in errors.
func limitsOf(fields map[string]any, names limitFields, prefix string) (l Limits, err error) {
	if value, ok := fields[names.floor]; ok {
		if l.Floor, ok = value.(string); !ok {
			return l, malformed(RoleTargets, prefix+names.floor, "is %v, want a version", value)
		}
		if _, err := manifest.ParseVersion(l.Floor); err != nil {
			return l, malformed(RoleTargets, prefix+names.floor, "%v", err)
		}
	}
	l.Downgrades, err = downgradesOf(fields, names.downgrade, prefix)
	return l, err
}

// Limits bound the versions of agents, or those of one component.
type Limits struct {
	// Floor is the lowest full version that may be installed, and the lowest that a
	// server may roll a host back to. Empty means that there is no floor.
	Floor string `json:"floor,omitempty"`
	// Downgrades are the versions that hosts may go back to, sorted.
	Downgrades []Downgrade `json:"allow_downgrade,omitempty"`
}

// Contents is the content of a targets file.
type Contents struct {
	Version int64
	Expires time.Time
	// Limits are those of agents.
	Limits
	// Components has the limits of each component that the file names.
	Components map[string]Limits
	// Targets are first those of agents, then those of each component; the newest version
	// of each is first.
	Targets []Target
}

// LimitsOf returns the limits of a component, or with an empty name, of agents.
func (c Contents) LimitsOf(component string) Limits {
	if component == "" {
		return c.Limits
	}
	return c.Components[component]
}

// Downgrade lets hosts go back to a version. Hosts refuse versions below the highest that
// they have run, since old versions have known faults and their signatures stay valid.
type Downgrade struct {
	Version string    `json:"version"` // full version
	Until   time.Time `json:"until"`
}

// AllowsDowngrade reports whether hosts may go back to a version.
func (l Limits) AllowsDowngrade(version string, now time.Time) bool {
	return slices.ContainsFunc(l.Downgrades, func(d Downgrade) bool { return d.Version == version && now.Before(d.Until) })
}

func downgradesOf(limits map[string]any, name, prefix string) ([]Downgrade, error) {
	value, ok := limits[name]
	if !ok {
		return nil, nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, malformed(RoleTargets, prefix+name, "is %v, want versions with the times until which they are allowed", value)
	}
	var all []Downgrade
	for _, version := range slices.Sorted(maps.Keys(fields)) {
		if _, err := manifest.ParseVersion(version); err != nil {
			return nil, malformed(RoleTargets, prefix+name, "%v", err)
		}
		text, _ := fields[version].(string)
		until, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, malformed(RoleTargets, prefix+name+"."+version, "is %v, want a time", fields[version])
		}
		all = append(all, Downgrade{version, until})
	}
	return all, nil
}

// ContentsOf reads a targets file without verifying it.
func ContentsOf(targets []byte) (Contents, error) {
	meta, err := decodeTargets(targets)
	if err != nil {
		return Contents{}, err
	}
	return contents(&meta.Signed)
}

func contents(targets *metadata.TargetsType) (Contents, error) {
	if targets.Delegations != nil {
		return Contents{}, malformed(RoleTargets, "delegations", "are there: all packages are signed in this one file")
	}
	c := Contents{Version: targets.Version, Expires: targets.Expires}
	var err error
	if c.Limits, err = limitsOf(targets.UnrecognizedFields, agentLimits, ""); err != nil {
		return Contents{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(targets.Targets)) {
		t, err := targetOf("targets", "", name, targets.Targets[name])
		if err != nil {
			return Contents{}, err
		}
		c.Targets = append(c.Targets, t)
	}
	if err := c.addComponents(targets); err != nil {
		return Contents{}, err
	}
	keys := map[string]string{} // computed once for each version, not in each comparison
	for _, t := range c.Targets {
		keys[t.Version] = manifest.VersionKey(t.Version)
	}
	slices.SortStableFunc(c.Targets, func(a, b Target) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(keys[b.Version], keys[a.Version]))
	})
	return c, nil
}

// addComponents reads the limits and the targets of components.
func (c *Contents) addComponents(targets *metadata.TargetsType) error {
	sections, err := objectIn(targets.UnrecognizedFields, componentsField, "")
	if err != nil {
		return err
	}
	for _, component := range slices.Sorted(maps.Keys(sections)) {
		const prefix = componentsField + "."
		if err := manifest.ValidComponentName(component); err != nil {
			return malformed(RoleTargets, prefix+component, "%v", err)
		}
		section, err := objectIn(sections, component, prefix)
		if err != nil {
			return err
		}
		at := prefix + component + "."
		if c.Components == nil {
			c.Components = map[string]Limits{}
		}
		if c.Components[component], err = limitsOf(section, componentLimits, at); err != nil {
			return err
		}
		entries, err := objectIn(section, componentTargets, at)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			file, err := targetFilesOf(entries[name])
			if err != nil {
				return malformed(RoleTargets, at+componentTargets+"."+name, "%v", err)
			}
			t, err := targetOf(at+componentTargets, component, name, file)
			if err != nil {
				return err
			}
			c.Targets = append(c.Targets, t)
		}
	}
	return nil
}

// objectIn returns the object in a field, whose name follows prefix in errors, or nil if the
// field is absent.
func objectIn(fields map[string]any, name, prefix string) (map[string]any, error) {
	value, ok := fields[name]
	if !ok {
		return nil, nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, malformed(RoleTargets, prefix+name, "is %v, want an object", value)
	}
	return object, nil
}

// targetFilesOf reads an entry of a component, which the library has read as any JSON.
func targetFilesOf(entry any) (*metadata.TargetFiles, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	file := new(metadata.TargetFiles)
	return file, json.Unmarshal(text, file)
}

// Edit is an unsigned change to a targets file.
type Edit struct {
	meta *metadata.Metadata[metadata.TargetsType]
}

// EditTargets begins a change of published, or a first file if published is nil. A
// signed file is never changed: the edit gets the next version. An unsigned file
// keeps its version, so that it can be prepared in several steps.
func EditTargets(published []byte, expires time.Time) (*Edit, error) {
	expires, err := checkExpiry("expires", expires)
	if err != nil {
		return nil, err
	}
	if published == nil {
		return &Edit{metadata.Targets(expires)}, nil
	}
	meta, err := decodeTargets(published)
	if err != nil {
		return nil, err
	}
	if _, err := contents(&meta.Signed); err != nil {
		return nil, err
	}
	if len(meta.Signatures) > 0 {
		meta.Signed.Version++
	}
	meta.Signed.Expires = expires
	meta.Signatures = []metadata.Signature{}
	return &Edit{meta}, nil
}

// AddTarget adds an archive. Adding the same archive again has no effect; other
// bytes under an existing name are an error.
func (e *Edit) AddTarget(t Target) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	name := t.FileName()
	have, err := e.target(t.Component, name)
	if err != nil {
		return err
	}
	if have != nil {
		if old, err := targetOf("targets", t.Component, name, have); err == nil && old == t {
			return nil
		}
		return fmt.Errorf("target %s: is there already with other bytes: hosts may run them, so give the new ones a version of their own (or remove it first)", name)
	}
	hash, err := hex.DecodeString(t.SHA512)
	if err != nil {
		return fmt.Errorf("target %s: sha512: %w", name, err)
	}
	text, err := json.Marshal(custom{t.Version, t.OS, t.Arch, t.Unpacked})
	if err != nil {
		return fmt.Errorf("target %s: %w", name, err)
	}
	raw := json.RawMessage(text)
	file := &metadata.TargetFiles{Path: name, Length: t.Size, Hashes: metadata.Hashes{hashName: hash}, Custom: &raw}
	if t.Component == "" {
		e.meta.Signed.Targets[name] = file
	} else {
		e.section(t.Component, componentTargets)[name] = file
	}
	return nil
}

// target returns the entry of an archive, or nil.
func (e *Edit) target(component, name string) (*metadata.TargetFiles, error) {
	if component == "" {
		return e.meta.Signed.Targets[name], nil
	}
	entry, ok := e.section(component, componentTargets)[name]
	if !ok {
		return nil, nil //nolint:nilnil // there is none yet
	}
	return targetFilesOf(entry)
}

// RemoveTarget removes an archive, so that no host installs it any more.
func (e *Edit) RemoveTarget(fileName string) error {
	if e.meta.Signed.Targets[fileName] != nil {
		delete(e.meta.Signed.Targets, fileName)
		return nil
	}
	for component := range e.section() {
		if targets := e.section(component, componentTargets); targets[fileName] != nil {
			delete(targets, fileName)
			return nil
		}
	}
	return fmt.Errorf("target %s: %w", fileName, ErrUnknownTarget)
}

// section returns the object at a path below componentsField, and adds it if it is absent.
func (e *Edit) section(path ...string) map[string]any {
	object := e.fields()
	for _, name := range append([]string{componentsField}, path...) {
		below, ok := object[name].(map[string]any) // EditTargets has checked what was there
		if !ok {
			below = map[string]any{}
			object[name] = below
		}
		object = below
	}
	return object
}

// fields returns the fields of the signed part that the specification does not define.
func (e *Edit) fields() map[string]any {
	if e.meta.Signed.UnrecognizedFields == nil {
		e.meta.Signed.UnrecognizedFields = map[string]any{}
	}
	return e.meta.Signed.UnrecognizedFields
}

// limits returns the fields for the limits of a component, or with an empty name, of agents.
func (e *Edit) limits(component string) (map[string]any, limitFields) {
	if component == "" {
		return e.fields(), agentLimits
	}
	return e.section(component), componentLimits
}

// SetFloor sets [Limits.Floor] of a component, or with an empty name, of agents; the version
// "" removes it.
func (e *Edit) SetFloor(component, version string) error {
	limits, names := e.limits(component)
	if version == "" {
		delete(limits, names.floor)
		return nil
	}
	if _, err := manifest.ParseVersion(version); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	limits[names.floor] = version
	return nil
}

// AllowDowngrade lets hosts go back to a version of a component, or with an empty name, of
// the agent, until a time; the zero time ends that.
func (e *Edit) AllowDowngrade(component, version string, until time.Time) error {
	now, err := contents(&e.meta.Signed)
	if err != nil {
		return err
	}
	have := now.LimitsOf(component)
	allowed := map[string]any{}
	for _, d := range have.Downgrades {
		allowed[d.Version] = d.Until.Format(time.RFC3339)
	}
	switch {
	case until.IsZero() && allowed[version] == nil:
		return fmt.Errorf("version %s: going back to it is not allowed", version)
	case until.IsZero():
		delete(allowed, version)
	case !slices.ContainsFunc(now.Targets, func(t Target) bool { return t.Component == component && t.Version == version }):
		return fmt.Errorf("version %s: %w: add its archive first", version, ErrUnknownTarget)
	default:
		if have.Floor != "" {
			if order, err := manifest.CompareVersions(version, have.Floor); err != nil || order < 0 {
				return errors.Join(err, fmt.Errorf("version %s: is below the floor, %s: lower that first", version, have.Floor))
			}
		}
		allowed[version] = until.UTC().Format(time.RFC3339)
	}
	limits, names := e.limits(component)
	limits[names.downgrade] = allowed
	if len(allowed) == 0 {
		delete(limits, names.downgrade)
	}
	return nil
}

// Bytes returns the file to sign.
func (e *Edit) Bytes() ([]byte, error) {
	// Of all components, of one, and of what one has.
	dropEmpty(e.fields(), componentsField, 3)
	if _, err := contents(&e.meta.Signed); err != nil {
		return nil, err
	}
	data, err := encode(RoleTargets, e.meta)
	if errors.Is(err, ErrTooLong) {
		return nil, fmt.Errorf("%w: remove archives that nobody installs any more", err)
	}
	return data, err
}

// dropEmpty removes the field, and those below it in as many levels, that are empty objects.
func dropEmpty(fields map[string]any, name string, levels int) {
	object, ok := fields[name].(map[string]any)
	if !ok || levels == 0 {
		return
	}
	for below := range object {
		dropEmpty(object, below, levels-1)
	}
	if len(object) == 0 {
		delete(fields, name)
	}
}
