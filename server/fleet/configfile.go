package fleet

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ConfigTemplate is a configuration file of a component that the server renders for each
// host, as an upgrade manifest names it.
type ConfigTemplate struct {
	// Absolute, on the host
	Path string `yaml:"path" json:"path" example:"/etc/web/web.conf"`
	// The file below the folder of the upgrade manifest
	Template string `yaml:"template" json:"template" example:"2.0.0/web.conf.tmpl"`
	// Octal; default: 0644
	Mode string `yaml:"mode" json:"mode,omitempty" example:"\"0640\""`
	// Name or number; default: the agent's own
	Owner string `yaml:"owner" json:"owner,omitempty"`
	Group string `yaml:"group" json:"group,omitempty"`
}

// Bounds of the variables of templates. A policy is read often, with its variables.
const (
	MaxVariables     = 100
	MaxVariableBytes = 4 << 10
)

// variableForm lets templates write .Vars.name.
var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// CheckVariables returns an error that names the first invalid variable.
func CheckVariables(variables map[string]string) error {
	if len(variables) > MaxVariables {
		return fmt.Errorf("are %d, want at most %d", len(variables), MaxVariables)
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		switch value := variables[name]; {
		case !variableForm.MatchString(name):
			return fmt.Errorf("have the name %q, want a letter and then up to 62 letters, digits and underscores, as templates say .Vars.name", name)
		case len(value) > MaxVariableBytes:
			return fmt.Errorf("have %d bytes in %s, want at most %d", len(value), name, MaxVariableBytes)
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("have a zero byte in %s", name)
		}
	}
	return nil
}
