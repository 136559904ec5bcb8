package systemd

import (
	"bytes"
	"cmp"
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
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
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
	text      []byte // with the condition
	canReload bool
	// links are the links of systemd that enable it, without the one to the unit itself.
	links []string
}

// unitPath is the path of the unit that systemd's links lead to.
func unitPath(r *runtime.Release, s settings) string { return filepath.Join(r.Dir, unitDir, s.Unit) }

// unreadPath is the path of the file that marks the component's unit as unread.
func unreadPath(r *runtime.Release) string { return filepath.Join(r.Dir, unitDir, "unread") }

// withheldPath is the path of the file that keeps systemd from starting the component's unit.
func withheldPath(r *runtime.Release) string { return filepath.Join(r.Dir, unitDir, "held") }

// condition is what a unit gets besides its text: whatever asks systemd to start it, also a boot,
// has no effect between Stop and Start, and for a release whose start is withheld at boot before Start.
func condition(r *runtime.Release) []byte {
	text := fmt.Appendf(nil, "\n# Added by the agent, which has stopped the unit while this file exists.\n[Unit]\nConditionPathExists=!%s\n", withheldPath(r))
	if r.WithheldAtBoot {
		text = fmt.Appendf(text, "# The agent makes this folder when it starts the unit, and a boot removes it.\nConditionPathExists=%s\n", r.StartedDir())
	}
	return text
}

// hold keeps systemd from starting the component's own unit, until release. A unit of the host is
// started at boot as the host says.
func (a *Adapter) hold(r *runtime.Release, s settings) error {
	if s.UnitFile == "" {
		return nil
	}
	if target, err := a.linkTarget(s); err != nil || target != unitPath(r, s) {
		return err
	}
	if held, err := a.exists(opUnit, withheldPath(r)); err != nil || held {
		return err
	}
	return disk.WriteFile(a.disk, opUnit, withheldPath(r), nil, 0o644)
}

func (a *Adapter) release(r *runtime.Release) error {
	if held, err := a.exists(opUnit, withheldPath(r)); err != nil || !held {
		return err
	}
	if err := a.disk.Remove(opUnit, withheldPath(r)); err != nil {
		return err
	}
	return a.disk.SyncDir(opUnit, filepath.Dir(withheldPath(r)))
}

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
			d.text = slices.Concat(d.text, condition(r))
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
		}
	}
	if want.UnitFile != "" {
		if err := a.write(ctx, m, to, want); err != nil {
			return err
		}
	}
	if err := a.read(ctx, m, cmp.Or(to, from)); err != nil || to != nil {
		return err
	}
	return a.release(from)
}

// markUnread records, before a unit or its links change, that systemd has not read them. The
// record outlives an agent that is killed. It need not survive a power cut, after which
// systemd reads all units.
func (a *Adapter) markUnread(r *runtime.Release) error {
	if err := a.disk.MkdirAll(opUnit, filepath.Dir(unreadPath(r)), 0o755); err != nil {
		return err
	}
	if err := a.disk.SyncDir(opUnit, r.Dir); err != nil {
		return err
	}
	f, err := a.disk.OpenFile(opUnit, unreadPath(r), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// read has systemd read its units, if that of the component is marked as unread. It is not
// left to ReloadDaemon: systemd itself notices a change by the file's time, which is older if
// the clock was set back.
func (a *Adapter) read(ctx context.Context, m manager, r *runtime.Release) error {
	if unread, err := a.exists(opUnit, unreadPath(r)); err != nil || !unread {
		return err
	}
	if err := m.reload(ctx); err != nil {
		return err
	}
	return a.disk.Remove(opUnit, unreadPath(r))
}

// write writes the release's unit, and has systemd make the links to it.
func (a *Adapter) write(ctx context.Context, m manager, r *runtime.Release, s settings) error {
	d, err := a.definition(r, s)
	if err != nil {
		return err
	}
	old, err := a.text(r, s)
	if err != nil {
		return err
	}
	linked, err := a.isLinked(r, s, d)
	if err != nil {
		return err
	}
	unread, err := a.exists(opUnit, unreadPath(r))
	if err != nil {
		return err
	}
	// An agent that was killed may have left what is not durable yet.
	if bytes.Equal(old, d.text) && linked && !unread {
		return nil
	}
	if err := a.markUnread(r); err != nil {
		return err
	}
	// If both texts have the same links, these stay.
	if o, err := parse(old, s.Unit, r.Current()); err != nil || !slices.Equal(o.links, d.links) {
		if err := a.unlink(ctx, m, r, s); err != nil {
			return err
		}
		linked = false
	}
	if err := disk.WriteFile(a.disk, opUnit, unitPath(r, s), d.text, 0o644); err != nil {
		return err
	}
	if !linked {
		enable := m.enable
		if len(d.links) == 0 {
			enable = m.link
		}
		if err := enable(ctx, unitPath(r, s)); err != nil {
			return err
		}
	}
	return a.syncLinks(d)
}

// forget removes the links to the release's unit, and the unit.
func (a *Adapter) forget(ctx context.Context, m manager, r *runtime.Release, s settings) error {
	if err := a.markUnread(r); err != nil {
		return err
	}
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

// text returns the unit in the component's folder, nil if there is none.
func (a *Adapter) text(r *runtime.Release, s settings) ([]byte, error) {
	text, err := a.disk.ReadFile(opUnit, unitPath(r, s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// isLinked reports whether all links are there. It looks at the links because systemd
// reports them as they were when it loaded the unit.
func (a *Adapter) isLinked(r *runtime.Release, s settings, d *definition) (bool, error) {
	target, err := a.linkTarget(s)
	if err != nil || target != unitPath(r, s) {
		return false, err
	}
	for _, link := range d.links {
		if there, err := a.exists(opLink, filepath.Join(linkDir, link)); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// exists reports whether there is a link or file.
func (a *Adapter) exists(op, path string) (bool, error) {
	_, err := a.disk.Lstat(op, path)
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
