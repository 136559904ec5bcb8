// Package race reports whether a test runs under the race detector, which takes several times as long.
package race

import (
	"runtime/debug"
	"slices"
)

// Enabled reports whether the race detector is enabled.
var Enabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()
