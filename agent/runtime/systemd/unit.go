package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/runtimes"
)

// settings are those of the signed manifest.
type settings = runtimes.Systemd

const (
	// currentWord stands in a unit file for the path of the link to the installed version,
	// which depends on the host.
	currentWord = "{{current}}"
	// maxUnitBytes is many times the size of real units.
	maxUnitBytes = 64 << 10
)

func decode(r *runtime.Release) (settings, error) {
	var s settings
	err := r.DecodeSettings(&s)
	return s, err
}

// definition is a unit that comes with a package.
type definition struct {
	text      []byte
	canReload bool
	// links are the links of systemd that enable it, without the one to the unit itself.
	links []string
}

// unitPath is the path of the unit that systemd's links lead to.
func unitPath(r *runtime.Release, s settings) string { return filepath.Join(r.Dir, unitDir, s.Unit) }

// definition returns the unit in the release's package, or nil if it is the host's.
func (a *Adapter) definition(r *runtime.Release, s settings) (*definition, error) {
	if s.UnitFile == "" {
		return nil, nil
	}
	if err := checkPath(r.Dir); err != nil {
		return nil, err
	}
	text, err := a.readUnit(filepath.Join(r.Home, s.UnitFile))
	if err == nil {
		var d *definition
		if d, err = parse(text, s.Unit, r.Current()); err == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("unit_file %s of component %s: %w", s.UnitFile, r.Name, err)
}

// checkPath refuses a folder whose path has a meaning in a unit. systemd has several rules
// for quoting, and which one holds depends on where the path is.
func checkPath(dir string) error {
	if strings.ContainsAny(dir, `"'\$%;{}`) || strings.ContainsFunc(dir, unicode.IsSpace) || strings.ContainsFunc(dir, unicode.IsControl) {
		return fmt.Errorf("the folder %q has a character in its name that means something else in a unit: install the agent in another folder, or remove unit_file from the package and install the unit on the host", dir)
	}
	return nil
}

func (a *Adapter) readUnit(path string) ([]byte, error) {
	f, err := a.disk.OpenFile(opUnit, path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxUnitBytes+1))
	if err == nil && len(text) > maxUnitBytes {
		err = fmt.Errorf("is larger than %d bytes", maxUnitBytes)
	}
	return text, err
}

// parse returns the unit with the given text, in which the path of the link stands for its
// placeholder.
func parse(text []byte, name, current string) (*definition, error) {
	text = bytes.ReplaceAll(text, []byte(currentWord), []byte(current))
	if i := bytes.Index(text, []byte("{{")); i >= 0 {
		return nil, fmt.Errorf("has %q, but only %s has a meaning there", firstLine(text[i:]), currentWord)
	}
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &definition{text: text}
	starts := false
	for _, o := range options {
		switch o.Section + "." + o.Name {
		case "Service.ExecStart":
			starts = true
		case "Service.ExecReload":
			d.canReload = true
		case "Service.Type":
			d.canReload = d.canReload || o.Value == "notify-reload"
		case "Install.WantedBy":
			d.enable(o.Value, ".wants/"+name)
		case "Install.RequiredBy":
			d.enable(o.Value, ".requires/"+name)
		case "Install.UpheldBy":
			d.enable(o.Value, ".upholds/"+name)
		case "Install.Alias":
			d.enable(o.Value, "")
		case "Install.Also":
			return nil, fmt.Errorf("has Also=%s in [Install]: a component is one unit", o.Value)
		}
	}
	if !starts {
		return nil, errors.New("has no ExecStart in [Service]")
	}
	return d, nil
}

func (d *definition) enable(units, suffix string) {
	for _, u := range strings.Fields(units) {
		d.links = append(d.links, u+suffix)
	}
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return line
}

// mountUnit is the name of the unit of a mount at a path.
func mountUnit(path string) string { return unit.UnitNamePathEscape(path) + ".mount" }

// swap stops both releases, and has systemd know the unit of to instead of that of from.
// Either may be nil.
func (a *Adapter) swap(ctx context.Context, m manager, from, to *runtime.Release) error {
	var old, want settings
	changed := false
	if to != nil {
		var err error
		if want, err = decode(to); err != nil {
			return err
		}
		// systemd may be about to start a unit that has ended by itself.
		if err := a.stop(ctx, m, to, want); err != nil {
			return err
		}
	}
	if from != nil {
		var err error
		if old, err = decode(from); err != nil {
			return err
		}
		if err := a.stop(ctx, m, from, old); err != nil {
			return err
		}
		if old.UnitFile != "" && (want.UnitFile == "" || want.Unit != old.Unit) {
			if err := a.forget(ctx, m, from, old); err != nil {
				return err
			}
			changed = true
		}
	}
	if want.UnitFile != "" {
		written, err := a.write(ctx, m, to, want)
		if err != nil {
			return err
		}
		changed = changed || written
	}
	if changed {
		// Not left to ReloadDaemon: systemd itself notices a change by the file's time,
		// which is older if the clock was set back.
		return m.reload(ctx)
	}
	return nil
}

// write writes the release's unit, and has systemd make the links to it. It reports whether
// it changed anything.
func (a *Adapter) write(ctx context.Context, m manager, r *runtime.Release, s settings) (bool, error) {
	d, err := a.definition(r, s)
	if err != nil {
		return false, err
	}
	same, err := a.isWritten(r, s, d)
	if err != nil {
		return false, err
	}
	if same {
		if linked, err := a.isLinked(r, s, d); err != nil || linked {
			return false, err
		}
	} else if err := a.writeText(ctx, m, r, s, d); err != nil {
		return false, err
	}
	if len(d.links) == 0 {
		err = m.link(ctx, unitPath(r, s))
	} else {
		err = m.enable(ctx, unitPath(r, s))
	}
	if err != nil {
		return false, err
	}
	return true, a.syncLinks(d)
}

func (a *Adapter) writeText(ctx context.Context, m manager, r *runtime.Release, s settings, d *definition) error {
	// The text before may say that the unit has other links.
	if err := a.unlink(ctx, m, r, s); err != nil {
		return err
	}
	path := unitPath(r, s)
	if err := a.disk.MkdirAll(opUnit, filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := a.disk.SyncDir(opUnit, r.Dir); err != nil {
		return err
	}
	return disk.WriteFile(a.disk, opUnit, path, d.text, 0o644)
}

// forget removes the links to the release's unit, and the unit.
func (a *Adapter) forget(ctx context.Context, m manager, r *runtime.Release, s settings) error {
	if err := a.unlink(ctx, m, r, s); err != nil {
		return err
	}
	return a.disk.Remove(opUnit, unitPath(r, s))
}

// unlink has systemd remove all links to the release's unit.
func (a *Adapter) unlink(ctx context.Context, m manager, r *runtime.Release, s settings) error {
	if target, err := a.linkTarget(s); err != nil || target != unitPath(r, s) {
		return err
	}
	if err := m.disable(ctx, s.Unit); err != nil {
		return err
	}
	return a.disk.SyncDir(opLink, linkDir)
}

// isWritten reports whether the unit is in the component's folder as the package has it.
func (a *Adapter) isWritten(r *runtime.Release, s settings, d *definition) (bool, error) {
	text, err := a.disk.ReadFile(opUnit, unitPath(r, s))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Equal(text, d.text), err
}

// isLinked reports whether all links are there. It looks at the links because systemd
// reports them as they were when it loaded the unit.
func (a *Adapter) isLinked(r *runtime.Release, s settings, d *definition) (bool, error) {
	target, err := a.linkTarget(s)
	if err != nil || target != unitPath(r, s) {
		return false, err
	}
	for _, link := range d.links {
		if there, err := a.exists(filepath.Join(linkDir, link)); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// exists reports whether there is a link or file.
func (a *Adapter) exists(link string) (bool, error) {
	_, err := a.disk.Lstat(opLink, link)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// linkTarget returns where systemd's link to the unit leads, "" if there is none.
func (a *Adapter) linkTarget(s settings) (string, error) {
	link := filepath.Join(linkDir, s.Unit)
	fi, err := a.disk.Lstat(opLink, link)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode()&fs.ModeSymlink == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return a.disk.Readlink(opLink, link)
}

// syncLinks makes the links durable, which systemd does not do.
func (a *Adapter) syncLinks(d *definition) error {
	dirs := []string{linkDir}
	for _, link := range d.links {
		dirs = append(dirs, filepath.Dir(filepath.Join(linkDir, link)))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := a.disk.SyncDir(opLink, dir); err != nil {
			return err
		}
	}
	return nil
}
