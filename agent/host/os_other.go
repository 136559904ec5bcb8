//go:build !linux

package host

import "runtime"

func readOS() OS {
	switch runtime.GOOS {
	case "darwin":
		return OS{Type: "macos", Platform: "darwin", Name: "macOS", Family: "darwin"}
	case "windows":
		return OS{Type: "windows", Platform: "windows", Name: "Windows", Family: "windows"}
	}
	return OS{Type: runtime.GOOS, Platform: runtime.GOOS, Name: runtime.GOOS, Family: runtime.GOOS}
}
