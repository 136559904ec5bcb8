package process

import (
	"path/filepath"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// runVariable is the environment variable with the id of a run. Children inherit it, which
// finds those that have left the program's session.
const runVariable = runtimes.RunVariable

// settings are those of the manifest.
type settings struct{ runtimes.Process }

// decode returns the settings of a release with their defaults.
func decode(r *runtime.Release) (settings, error) {
	var s settings
	err := r.DecodeSettings(&s.Process)
	return s, err
}

// workingDir returns the absolute working directory.
func (s settings) workingDir(home string) string {
	if filepath.IsAbs(s.WorkingDir) {
		return s.WorkingDir
	}
	return filepath.Join(home, filepath.FromSlash(s.WorkingDir))
}
