package disk

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// ExposedError says why somebody else can change what a path leads to.
type ExposedError struct {
	// Path is the file, the folder or the link that is not protected.
	Path string
	// Owner is the user to whom it belongs and should not, and who may change it; -1 if it is its mode
	// that lets others write.
	Owner int
	Mode  fs.FileMode
}

func (e *ExposedError) Error() string {
	if e.Owner >= 0 {
		return fmt.Sprintf("%s belongs to the user %d, who can change what it is", e.Path, e.Owner)
	}
	return fmt.Sprintf("%s may be written to by others than its owner (mode %04o)", e.Path, e.Mode.Perm())
}

// CheckOwned returns an ExposedError if anybody but root and the user uid can change what a path leads
// to: the file itself, and each folder on the way, those of links included, from the root of the file
// system. The error is fs.ErrNotExist if there is no such file. Systems that do not say whose a file
// is (Windows) are not checked.
//
// After it has returned nil, only root and that user can make it wrong.
func CheckOwned(d Disk, op, path string, uid int) error {
	root := filepath.VolumeName(path) + string(filepath.Separator)
	var found error
	visit := func(at string) {
		if found != nil {
			return
		}
		var fi fs.FileInfo
		if fi, found = d.Lstat(op, at); found != nil {
			return
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			// Nobody changes a link; it is replaced by who may write to its folder, which is judged. In a
			// folder with the sticky bit, such as /tmp, its owner may too.
			parent, err := d.Lstat(op, filepath.Dir(at))
			if found = err; err != nil || parent.Mode()&fs.ModeSticky == 0 {
				return
			}
		}
		found = judge(at, fi.Mode(), OwnerOf(fi), uid)
	}
	visit(root)
	end, err := resolve(d, op, root, path, visit)
	if found != nil || err != nil {
		if found == nil {
			found = err
		}
		return found
	}
	_, err = d.Lstat(op, end)
	return err
}

// OthersMayWrite reports whether a mode lets others than the owner write. The members of root's group
// are root.
func OthersMayWrite(mode fs.FileMode, owner Owner) bool {
	return mode&0o002 != 0 || mode&0o020 != 0 && owner.GID != 0
}

// judge returns why a file on the way is not protected. The mode of a link says nothing, and in a
// folder with the sticky bit only the owner of a name may change it.
func judge(path string, mode fs.FileMode, owner Owner, uid int) error {
	switch {
	case owner == Own:
		return nil
	case owner.UID != 0 && owner.UID != uid:
		return &ExposedError{Path: path, Owner: owner.UID, Mode: mode}
	case mode&fs.ModeSymlink != 0, mode.IsDir() && mode&fs.ModeSticky != 0:
		return nil
	case OthersMayWrite(mode, owner):
		return &ExposedError{Path: path, Owner: -1, Mode: mode}
	}
	return nil
}
