package architecture

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// Calls that change what a path leads to. On hosts they are made by root, so a name on the path that
// another account may change would have them change something else. Package agent/foreign opens folders
// of other accounts, and disk.Folder works in them.
var (
	// byPath are those of the packages os, syscall, unix and windows.
	byPath = []string{
		"Chmod", "Chown", "Chtimes", "Lchown", "Link", "MoveFileEx", "Remove", "RemoveAll", "Rename", "Rmdir", "Symlink", "Truncate", "Unlink",
	}
	// onDisk are the methods of disk.Disk, with their numbers of arguments. They tell them from those of
	// disk.Folder, which have no label.
	onDisk = map[string]int{"MkdirAll": 3, "OpenFile": 4, "Remove": 2, "RemoveAll": 2, "Rename": 3, "Symlink": 3}
	// ofDisk are the functions of package disk.
	ofDisk = []string{"CopyTree", "Point", "RemoveCopies", "RemoveHome", "RemoveRecord", "WriteFile", "WriteRecord"}
)

// asRoot are the packages whose calls of package os are checked, and withForeign those that know paths
// that a package or a policy names, whose calls of package disk are checked too.
var (
	asRoot      = []string{"agent/...", "watcher/...", "packaging/..."}
	withForeign = []string{"agent/component/...", "agent/foreign", "agent/primitive/...", "agent/runtime/...", "agent/statecopy/..."}
)

// ownPaths are where paths are used all the same, as a folder, a file, or a file and a function.
var ownPaths = map[string]string{
	"packaging/host/disk":             "it is what the others call, with paths that are checked below",
	"packaging/release":               "it builds releases, on the publisher's machine",
	"packaging/host/socket":           "it works in a folder of mode 0700 that the process has made, beside the socket, whose folder belongs to the agent or the server",
	"packaging/host/doctor":           "doctor removes the empty file that it has just made, whose name is random",
	"agent/control":                   "the control socket is in the agent's folder",
	"agent/setup":                     "install refuses a folder that others may change; the others are systemd's, and a random name that was just made",
	"agent/component":                 "the components' folders below the agent's, with journal, state, versions and backups; their names are the agent's",
	"watcher/logfile.go":              "the log is in the agent's folder",
	"watcher/host":                    "the log is in the agent's folder",
	"agent/runtime/docker/install.go": "the copy of a container's description is in the backup, in the agent's folder",

	"agent/cmd_diagnostics.go":             "it removes the archive that it has just made, where the operator wanted it",
	"agent/runtime/boot.go RemoveStarted":  "/dev/shm is sticky, so that nobody else changes root's names; what is below is removed by descriptors",
	"agent/runtime/process/host_linux.go":  "control groups are root's",
	"agent/runtime/process/process.go":     "the component's folder is the agent's; what is below its temporary folder is removed by descriptors",
	"agent/runtime/process/record.go":      "the record is in the component's folder, which is the agent's",
	"agent/runtime/systemd/unit.go":        "units are in systemd's folders and in the component's, which are root's",
	"agent/primitive/acquire_artifact.go":  "downloads and versions are in the component's folder, which is the agent's",
	"agent/primitive/backup_state.go":      "the backup is in the component's folder, which is the agent's",
	"agent/primitive/backup_data.go":       "RESTORE.txt is in the backup",
	"agent/primitive/install_artifact.go":  "the link current is in the component's folder, which is the agent's",
	"agent/statecopy/statecopy.go Save":    "the archive is in the backup",
	"agent/statecopy/statecopy.go Restore": "the archive is in the backup",
}

// changesByPath returns the calls of a source that change something by its path, as "file function: call".
func changesByPath(s source, disk bool) map[string][]string {
	out := map[string][]string{}
	for _, decl := range s.syntax.Decls {
		name := ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, called := "", sel.Sel.Name
			if x, ok := sel.X.(*ast.Ident); ok {
				of = x.Name
			}
			switch {
			case slices.Contains([]string{"os", "syscall", "unix", "windows"}, of):
				ok = slices.Contains(byPath, called)
			case !disk:
				ok = false
			case of == "disk":
				ok = slices.Contains(ofDisk, called)
			default:
				args, method := onDisk[called]
				ok = method && len(call.Args) == args && !isContext(call.Args)
			}
			if ok {
				out[name] = append(out[name], of+"."+called)
			}
			return true
		})
	}
	return out
}

// isContext reports whether a call gets a context first, as those of runtimes do.
func isContext(args []ast.Expr) bool {
	if len(args) == 0 {
		return false
	}
	x, ok := args[0].(*ast.Ident)
	return ok && x.Name == "ctx"
}

// ownPath returns the row of ownPaths for a function, or "".
func ownPath(s source, function string) string {
	for _, at := range []string{s.name + " " + function, s.name, s.dir} {
		if _, ok := ownPaths[at]; ok {
			return at
		}
	}
	for dir := path.Dir(s.dir); dir != "."; dir = path.Dir(dir) {
		if _, ok := ownPaths[dir]; ok {
			return dir
		}
	}
	return ""
}

func TestRootChangesForeignFoldersByDescriptorsOnly(t *testing.T) {
	used := map[string]bool{}
	for _, s := range openTree(t).sources() {
		if s.test || !matches(s.dir, asRoot) || matches(s.dir, []string{support}) {
			continue
		}
		found := changesByPath(s, matches(s.dir, withForeign))
		for _, function := range slices.Sorted(maps.Keys(found)) {
			at := ownPath(s, function)
			used[at] = true
			if at == "" {
				t.Errorf("%s: %s calls %s, which follows names on the path that other accounts may change: open the folder with agent/foreign and call its methods, or say in ownPaths why only root can change the names",
					s.name, function, strings.Join(found[function], ", "))
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(ownPaths)) {
		if !used[at] {
			t.Errorf("ownPaths has %s, which changes nothing by its path: remove the row", at)
		}
	}
}

// The check finds calls in a small example.
func TestChangesByPathAreFound(t *testing.T) {
	const text = `package x
func a(d disk.Disk) { os.Chown("a", 1, 2); d.RemoveAll(op, "a"); disk.WriteFile(d, op, "a", nil, 0) }
func b(f disk.Folder) { f.RemoveAll("a"); f.Rename("a", "b"); a.Remove(ctx, r); os.ReadFile("a") }
`
	s := parse(t, "agent/x", map[string]string{"x.go": text})[0]
	for _, test := range []struct {
		disk bool
		want []string
	}{{false, []string{"os.Chown"}}, {true, []string{"os.Chown", "d.RemoveAll", "disk.WriteFile"}}} {
		got := changesByPath(s, test.disk)
		if !slices.Equal(got["a"], test.want) || len(got) != 1 {
			t.Errorf("found %v, want %v in a", got, test.want)
		}
	}
}
