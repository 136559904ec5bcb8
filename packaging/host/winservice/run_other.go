//go:build !windows

package winservice

import "context"

// Running reports whether the service control manager of Windows has started this process.
func Running() bool { return false }

// Run calls do.
func Run(ctx context.Context, do func(context.Context) error) error { return do(ctx) }
