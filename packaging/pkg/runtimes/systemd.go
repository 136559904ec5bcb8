package runtimes

import (
	"regexp"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Systemd are the settings of the runtime systemd.
type Systemd struct {
	// Unit is the name of the unit, such as web.service.
	Unit string `json:"unit"`
	// UnitFile is the file of the package that is the unit. Empty: the host has it.
	UnitFile string `json:"unit_file"`
}

// unitName is a name that systemctl and journalctl take neither for an option nor for a
// pattern. An instance of a template is one too.
var unitName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service$`)

// maxUnitName is systemd's.
const maxUnitName = 255

func (s *Systemd) needs() []need {
	if s.UnitFile == "" {
		return nil
	}
	return []need{{"unit_file", s.UnitFile, false}}
}

func (s *Systemd) complete(c *manifest.Component) error {
	var p problems
	if len(s.Unit) > maxUnitName || !unitName.MatchString(s.Unit) {
		p.add("unit", "is %q, want the name of a service such as web.service", s.Unit)
	}
	switch {
	case s.UnitFile == "" && len(c.Migrations) > 0:
		p.add("unit_file", "is missing: a host that boots in the middle of a migration would start its own unit, so a component with migrations brings its unit")
	case s.UnitFile == "":
	case !inPackage(s.UnitFile):
		p.add("unit_file", "is %q, want a file of the package", s.UnitFile)
	case strings.Contains(s.Unit, "@"):
		p.add("unit", "%s is an instance of a template, which unit_file cannot be: name the unit without @", s.Unit)
	}
	return p.join()
}
