//go:build !linux

package doctor

func holderOf(string) string { return "" }
