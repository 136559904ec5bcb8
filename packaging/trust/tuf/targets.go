package tuf

import (
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

	"github.com/muster-fleet/muster/packaging/manifest"
)

// floorField and downgradeField are the fields for [Contents.Floor] and
// [Contents.Downgrades] in the signed part of a targets file. The specification allows
// further fields there, under the signature.
const (
	floorField     = "x-muster-floor"
	downgradeField = "x-muster-allow-downgrade"
)

const hashName = "sha512"

// formats are the supported archive formats.
var formats = []string{"tar.gz", "zip"}

// Target describes one archive, as the publishers sign it.
type Target struct {
	Version  string // full version, as in the archive's name
	OS, Arch string // Go's names
	Format   string // "tar.gz" or "zip"
	Size     int64  // bytes
	Unpacked int64  // bytes of what it holds
	SHA512   string // hexadecimal, lower case
}

// FileName returns the target's name.
func (t Target) FileName() string {
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

// targetOf reads an entry of a targets file. Its name and its custom part both give
// version and platform, and must agree.
func targetOf(name string, file *metadata.TargetFiles) (Target, error) {
	field := "targets." + name
	var c custom
	if file.Custom == nil {
		return Target{}, malformed(RoleTargets, field+".custom", "is missing")
	}
	if err := json.Unmarshal(*file.Custom, &c); err != nil {
		return Target{}, malformed(RoleTargets, field+".custom", "%v", err)
	}
	t := Target{
		Version: c.Version, OS: c.OS, Arch: c.Arch, Size: file.Length, Unpacked: c.UnpackedSize,
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

func floorOf(targets *metadata.TargetsType) (string, error) {
	value, ok := targets.UnrecognizedFields[floorField]
	if !ok {
		return "", nil
	}
	floor, ok := value.(string)
	if !ok {
		return "", malformed(RoleTargets, floorField, "is %v, want a version", value)
	}
	if _, err := manifest.ParseVersion(floor); err != nil {
		return "", malformed(RoleTargets, floorField, "%v", err)
	}
	return floor, nil
}

// Contents is the content of a targets file.
type Contents struct {
	Version int64
	Expires time.Time
	// Floor is the lowest full version that may be installed, and the lowest that a
	// server may roll a host back to. Empty means that there is no floor.
	Floor string
	// Downgrades are the versions that hosts may go back to, sorted.
	Downgrades []Downgrade
	// Targets, newest version first.
	Targets []Target
}

// Downgrade lets hosts go back to a version. Hosts refuse versions below the highest that
// they have run, since old versions have known faults and their signatures stay valid.
type Downgrade struct {
	Version string    `json:"version"` // full version
	Until   time.Time `json:"until"`
}

// AllowsDowngrade reports whether hosts may go back to a version.
func (c Contents) AllowsDowngrade(version string, now time.Time) bool {
	return slices.ContainsFunc(c.Downgrades, func(d Downgrade) bool { return d.Version == version && now.Before(d.Until) })
}

func downgradesOf(targets *metadata.TargetsType) ([]Downgrade, error) {
	value, ok := targets.UnrecognizedFields[downgradeField]
	if !ok {
		return nil, nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, malformed(RoleTargets, downgradeField, "is %v, want versions with the times until which they are allowed", value)
	}
	var all []Downgrade
	for _, version := range slices.Sorted(maps.Keys(fields)) {
		if _, err := manifest.ParseVersion(version); err != nil {
			return nil, malformed(RoleTargets, downgradeField, "%v", err)
		}
		text, _ := fields[version].(string)
		until, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, malformed(RoleTargets, downgradeField+"."+version, "is %v, want a time", fields[version])
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
	if c.Floor, err = floorOf(targets); err != nil {
		return Contents{}, err
	}
	if c.Downgrades, err = downgradesOf(targets); err != nil {
		return Contents{}, err
	}
	keys := map[string]string{} // computed once for each target, not in each comparison
	for _, name := range slices.Sorted(maps.Keys(targets.Targets)) {
		t, err := targetOf(name, targets.Targets[name])
		if err != nil {
			return Contents{}, err
		}
		c.Targets = append(c.Targets, t)
		keys[t.Version] = manifest.VersionKey(t.Version)
	}
	slices.SortStableFunc(c.Targets, func(a, b Target) int { return strings.Compare(keys[b.Version], keys[a.Version]) })
	return c, nil
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
	if have := e.meta.Signed.Targets[name]; have != nil {
		if old, err := targetOf(name, have); err == nil && old == t {
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
	e.meta.Signed.Targets[name] = &metadata.TargetFiles{
		Path: name, Length: t.Size, Hashes: metadata.Hashes{hashName: hash}, Custom: &raw,
	}
	return nil
}

// RemoveTarget removes an archive, so that no host installs it any more.
func (e *Edit) RemoveTarget(fileName string) error {
	if e.meta.Signed.Targets[fileName] == nil {
		return fmt.Errorf("target %s: %w", fileName, ErrUnknownTarget)
	}
	delete(e.meta.Signed.Targets, fileName)
	return nil
}

// SetFloor sets [Contents.Floor]; "" removes it.
func (e *Edit) SetFloor(version string) error {
	if version == "" {
		delete(e.meta.Signed.UnrecognizedFields, floorField)
		return nil
	}
	if _, err := manifest.ParseVersion(version); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	if e.meta.Signed.UnrecognizedFields == nil {
		e.meta.Signed.UnrecognizedFields = map[string]any{}
	}
	e.meta.Signed.UnrecognizedFields[floorField] = version
	return nil
}

// AllowDowngrade lets hosts go back to a version until a time; the zero time ends that.
func (e *Edit) AllowDowngrade(version string, until time.Time) error {
	now, err := contents(&e.meta.Signed)
	if err != nil {
		return err
	}
	allowed := map[string]any{}
	for _, d := range now.Downgrades {
		allowed[d.Version] = d.Until.Format(time.RFC3339)
	}
	switch {
	case until.IsZero() && allowed[version] == nil:
		return fmt.Errorf("version %s: going back to it is not allowed", version)
	case until.IsZero():
		delete(allowed, version)
	case !slices.ContainsFunc(now.Targets, func(t Target) bool { return t.Version == version }):
		return fmt.Errorf("version %s: %w: add its archive first", version, ErrUnknownTarget)
	default:
		if now.Floor != "" {
			if order, err := manifest.CompareVersions(version, now.Floor); err != nil || order < 0 {
				return errors.Join(err, fmt.Errorf("version %s: is below the floor, %s: lower that first", version, now.Floor))
			}
		}
		allowed[version] = until.UTC().Format(time.RFC3339)
	}
	if e.meta.Signed.UnrecognizedFields == nil {
		e.meta.Signed.UnrecognizedFields = map[string]any{}
	}
	e.meta.Signed.UnrecognizedFields[downgradeField] = allowed
	if len(allowed) == 0 {
		delete(e.meta.Signed.UnrecognizedFields, downgradeField)
	}
	return nil
}

// Bytes returns the file to sign.
func (e *Edit) Bytes() ([]byte, error) {
	if _, err := contents(&e.meta.Signed); err != nil {
		return nil, err
	}
	data, err := encode(RoleTargets, e.meta)
	if errors.Is(err, ErrTooLong) {
		return nil, fmt.Errorf("%w: remove archives that nobody installs any more", err)
	}
	return data, err
}
