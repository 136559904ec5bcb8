//go:build !windows

package launch

import "context"

// IsService reports whether the service control manager of Windows has started this process.
func IsService() bool { return false }

// AsService calls do.
func AsService(ctx context.Context, do func(context.Context) error) error { return do(ctx) }
