package primitive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/agent/foreign"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// writeConfigs writes the version's configuration files, and removes those that only the
// version before it had. Undoing restores the files from the backup.
func (c *Change) writeConfigs() steps.Step {
	return steps.Step{Name: WriteConfigs, Timeout: writeTimeout, Input: c.input, Done: c.configsWritten, Do: c.doWriteConfigs, Undo: c.undoWriteConfigs}
}

// configFile is a configuration file as it is to be, or as it is.
type configFile struct {
	path    string
	content []byte
	mode    fs.FileMode
	owner   disk.Owner
}

func (f *configFile) equals(is *configFile) bool {
	return is != nil && bytes.Equal(f.content, is.content) && f.mode == is.mode && (f.owner == disk.Own || f.owner == is.owner)
}

// inFolder calls act with the folder that holds a path on the host, and the path's last name. Others may
// write to that folder, and to those above it; see package foreign.
func (c *Change) inFolder(op, path string, act func(folder disk.Folder, name string) error) error {
	folder, name, err := foreign.Parent(c.Disk, op, path)
	if err != nil {
		return err
	}
	return errors.Join(act(folder, name), folder.Close())
}

// readConfig returns a configuration file of the host, nil if it does not exist.
func (c *Change) readConfig(path string) (is *configFile, err error) {
	err = c.inFolder(WriteConfigs, path, func(folder disk.Folder, name string) error {
		f, err := folder.Open(name)
		if err != nil {
			return err
		}
		is, err = readFile(f, path)
		return errors.Join(err, f.Close())
	})
	if missing(err) {
		return nil, nil
	}
	return is, err
}

func readFile(f disk.File, path string) (*configFile, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxConfigFile {
		return nil, fmt.Errorf("configuration file %s has more than %d bytes", path, maxConfigFile)
	}
	return &configFile{path, content, fi.Mode().Perm(), disk.OwnerOf(fi)}, nil
}

// writeConfig replaces a configuration file of the host.
func (c *Change) writeConfig(f configFile) error {
	return c.inFolder(WriteConfigs, f.path, func(folder disk.Folder, name string) error {
		return disk.WriteOwned(folder, WriteConfigs, name, f.content, f.mode, f.owner)
	})
}

// files returns the configuration files of a version, sorted by path: the package's own, and
// in their place those that the server has rendered, as far as both the package and the
// policy allow; rendered identifies the latter. A version that the host goes back to gets the
// files that it had.
func (c *Change) files(to *runtime.Release) (files []configFile, rendered string, err error) {
	if files, rendered, err = c.namedFiles(to); err != nil {
		return nil, "", err
	}
	for _, f := range files {
		if err := c.checkOutside("configuration file", f.path); err != nil {
			return nil, "", err
		}
	}
	return files, rendered, nil
}

// checkOutside refuses a path that leads into the agent's folder, also by a link: there are
// its identity, the keys it trusts, and what it runs. It is asked again before files are
// written, since a component may own a folder of the path.
func (c *Change) checkOutside(what, path string) error {
	folder, err := disk.Resolve(c.Disk, WriteConfigs, "", filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, path, err)
	}
	leads := filepath.Join(folder, filepath.Base(path))
	return c.eachOwn(func(own, real string) error {
		if c.in(leads, real) {
			return fmt.Errorf("%s %s: it would be in the agent's own folder %s: choose a path elsewhere", what, path, own)
		}
		return nil
	})
}

// eachOwn calls f with the agent's own folders, and with what they lead to.
func (c *Change) eachOwn(f func(own, real string) error) error {
	for _, own := range []string{c.Top, c.Links} {
		if own == "" {
			continue
		}
		real, err := disk.Resolve(c.Disk, WriteConfigs, "", own)
		if err != nil {
			return err
		}
		if err := f(own, real); err != nil {
			return err
		}
	}
	return nil
}

// in reports whether a path is a folder, or in it.
func (c *Change) in(path, folder string) bool {
	if c.GOOS != "linux" { // there names that differ in case may be the same
		path, folder = strings.ToLower(path), strings.ToLower(folder)
	}
	return path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}

func (c *Change) namedFiles(to *runtime.Release) (files []configFile, rendered string, err error) {
	if c.Journal.Desired.Rollback && len(c.Journal.Desired.Files) == 0 {
		files, had, err := c.backedUp()
		if err != nil {
			return nil, "", err
		}
		if had != nil {
			return files, had.RenderedSHA256, nil
		}
	}
	byPath := map[string]configFile{}
	for _, f := range to.Component.ConfigFiles {
		content, err := c.Disk.ReadFile(WriteConfigs, filepath.Join(to.Home, filepath.FromSlash(f.From)))
		if err != nil {
			return nil, "", err
		}
		if byPath[f.Path], err = c.configFile(f.Path, content, f.Mode, f.Owner, f.Group); err != nil {
			return nil, "", err
		}
	}
	var fromServer []configFile
	for i, f := range c.Journal.Desired.Files {
		field := fmt.Sprintf("component.files[%d]: %s", i, f.Path)
		sum := sha256.Sum256([]byte(f.Content))
		switch {
		case manifest.ValidHostPath(f.Path) != nil:
			return nil, "", fmt.Errorf("component.files[%d].path: %w", i, manifest.ValidHostPath(f.Path))
		case !c.Journal.Desired.ServerConfig:
			return nil, "", fmt.Errorf("%s: the component's policy does not let the server write configuration: set server_config in the policy", field)
		case !to.Component.ServerMayWrite(f.Path):
			return nil, "", fmt.Errorf("%s: the publishers of %s do not let a server write it: name it in server-files of the package", field, to.Name)
		case hex.EncodeToString(sum[:]) != f.SHA256:
			return nil, "", fmt.Errorf("%s: its content has another SHA-256 than %s", field, f.SHA256)
		}
		made, err := c.configFile(f.Path, []byte(f.Content), f.Mode, f.Owner, f.Group)
		if err != nil {
			return nil, "", err
		}
		byPath[f.Path] = made
		fromServer = append(fromServer, made)
	}
	for _, f := range byPath {
		files = append(files, f)
	}
	sortByPath(files)
	sortByPath(fromServer)
	return files, digestOf(fromServer), nil
}

func sortByPath(files []configFile) {
	slices.SortFunc(files, func(a, b configFile) int { return cmp.Compare(a.path, b.path) })
}

func (c *Change) configFile(path string, content []byte, mode, user, group string) (configFile, error) {
	m, err := manifest.ParseMode(mode)
	if err != nil {
		return configFile{}, fmt.Errorf("configuration file %s: mode %w", path, err)
	}
	owner := disk.Own
	if user != "" || group != "" {
		if owner, err = c.Account(user, group); err != nil {
			return configFile{}, fmt.Errorf("configuration file %s: %w", path, err)
		}
	}
	return configFile{path, content, fs.FileMode(m), owner}, nil
}

// backedUp returns the configuration files of a kept version from the newest backup that was
// made while it was installed, and what was installed then; nil if there is no such backup.
func (c *Change) backedUp() (files []configFile, had *Installed, err error) {
	dir := filepath.Dir(c.backup())
	entries, err := c.Disk.ReadDir(WriteConfigs, dir)
	if err != nil {
		return nil, nil, err
	}
	var newest fs.FileInfo
	var m *backupRecord
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || newest != nil && !fi.ModTime().After(newest.ModTime()) {
			continue
		}
		b, err := readBackup(c.Disk, filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		if b != nil && b.From != nil && b.From.Home == c.Journal.To.Home {
			newest, m = fi, b
		}
	}
	if m == nil {
		return nil, nil, nil
	}
	for _, f := range m.Files {
		if f.Copy == "" {
			continue
		}
		content, err := c.Disk.ReadFile(WriteConfigs, filepath.Join(dir, newest.Name(), f.Copy))
		if err != nil {
			return nil, nil, err
		}
		files = append(files, configFile{f.Path, content, fs.FileMode(f.Mode), f.Owner})
	}
	return files, m.From, nil
}

func paths(files []configFile) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.path
	}
	return out
}

// digestOf identifies the configuration of a version.
func digestOf(files []configFile) string {
	written := make([]manifest.WrittenFile, len(files))
	for i, f := range files {
		written[i] = manifest.WrittenFile{Path: f.path, Mode: uint32(f.mode), SHA256: sha256.Sum256(f.content)}
	}
	return manifest.ConfigDigest(written)
}

// obsolete returns the files that only the version before had.
func (c *Change) obsolete() []string {
	if c.Journal.From == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Journal.From.Files), func(p string) bool { return slices.Contains(c.Journal.To.Files, p) })
}

func (c *Change) configsWritten(context.Context) (bool, error) {
	to, err := c.to()
	if err != nil {
		return false, err
	}
	files, _, err := c.files(to)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		is, err := c.readConfig(f.path)
		if err != nil || !f.equals(is) {
			return false, err
		}
	}
	for _, path := range c.obsolete() {
		if is, err := c.readConfig(path); err != nil || is != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *Change) doWriteConfigs(ctx context.Context) error {
	to, err := c.to()
	if err != nil {
		return err
	}
	files, _, err := c.files(to)
	if err != nil {
		return err
	}
	if err := c.backupOthers(files); err != nil {
		return err
	}
	for _, f := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		is, err := c.readConfig(f.path)
		if err != nil {
			return err
		}
		if f.equals(is) {
			continue
		}
		if err := c.writeConfig(f); err != nil {
			return fmt.Errorf("configuration file %s: %w", f.path, err)
		}
	}
	for _, path := range c.obsolete() {
		if err := c.removeConfig(path); err != nil {
			return err
		}
	}
	return nil
}

// backupOthers adds to the backup the files that this version writes and the one before did
// not, since the host may have them from elsewhere.
func (c *Change) backupOthers(files []configFile) error {
	m, err := readBackup(c.Disk, c.backup())
	if err != nil {
		return err
	}
	if m == nil {
		return errors.New("the backup is gone, so the configuration could not be restored: nothing is written")
	}
	known := map[string]bool{}
	for _, f := range m.Files {
		known[f.Path] = true
	}
	before := len(m.Files)
	for _, f := range files {
		if known[f.path] {
			continue
		}
		b, err := c.backupFile(c.backup(), strconv.Itoa(len(m.Files)), f.path)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, b)
	}
	if len(m.Files) == before {
		return nil
	}
	return c.saveBackup(c.backup(), *m)
}

func (c *Change) removeConfig(path string) error {
	return c.inFolder(WriteConfigs, path, func(folder disk.Folder, name string) error {
		if err := folder.Remove(name); err != nil {
			return err
		}
		return folder.Sync()
	})
}

func (c *Change) undoWriteConfigs(context.Context) error {
	m, err := readBackup(c.Disk, c.backup())
	if err != nil || m == nil {
		return err // without a backup nothing was written
	}
	for _, f := range m.Files {
		if f.Copy == "" {
			if err := c.removeConfig(f.Path); err != nil && !missing(err) {
				return err
			}
			continue
		}
		content, err := c.Disk.ReadFile(WriteConfigs, filepath.Join(c.backup(), f.Copy))
		if err != nil {
			return err
		}
		was := configFile{f.Path, content, fs.FileMode(f.Mode), f.Owner}
		is, err := c.readConfig(f.Path)
		if err != nil && !errors.Is(err, disk.ErrLink) && !errors.Is(err, disk.ErrNotRegular) { // those are replaced
			return err
		}
		if was.equals(is) {
			continue
		}
		if err := c.writeConfig(was); err != nil {
			return err
		}
	}
	return nil
}
