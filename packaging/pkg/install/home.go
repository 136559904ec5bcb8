package install

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const opReadHome = "read version"

// ErrDamagedHome is returned for a versioned home that exists but does not hold the
// version its name says. Callers must not start it. disk.RemoveHome removes it unless
// a link leads into it.
var ErrDamagedHome = errors.New("installed version is damaged")

// ReadHome returns the package that a versioned home holds. home is relative to top
// and slash-separated, as manifest.Package.Home returns it. The error is
// fs.ErrNotExist if there is no such home, and [ErrDamagedHome] if its manifest cannot
// be read (a power cut can leave a file of zeros), belongs to another home, or has no
// program beside it. ReadHome does not check that the program starts.
func ReadHome(d disk.Disk, top, home string) (manifest.Package, error) {
	var none manifest.Package
	if !layout.IsHome(home) {
		return none, fmt.Errorf("read version %s: want data/<folder of one version>", home)
	}
	full := layout.Path(top, home)
	if _, err := d.Lstat(opReadHome, full); err != nil {
		return none, err
	}
	damaged := func(why error) error { return fmt.Errorf("%s: %w: %w", full, ErrDamagedHome, why) }
	text, err := d.ReadFile(opReadHome, filepath.Join(full, manifest.FileName))
	if err != nil {
		return none, damaged(err)
	}
	m, err := manifest.Parse(bytes.NewReader(text))
	if err != nil {
		return none, damaged(err)
	}
	if m.Package.Home() != home {
		return none, damaged(fmt.Errorf("its %s is the one of %s", manifest.FileName, m.Package.Home()))
	}
	if m.Package.Component != nil {
		return m.Package, nil // what it has to hold only its runtime knows
	}
	program := filepath.Join(full, layout.AgentLink)
	fi, err := disk.Stat(d, opReadHome, program) // of a linked home it is below the prefix
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() == 0) {
		err = fmt.Errorf("%s is no program", filepath.Base(program))
	}
	if err != nil {
		return none, damaged(err)
	}
	return m.Package, nil
}
