package doctor

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// skewWarning and skewProblem are how far two clocks may differ. Signed metadata is renewed
	// hourly and certificates begin five minutes in the past.
	skewWarning = 30 * time.Second
	skewProblem = 5 * time.Minute

	// expiryWarning is how long before the end of a certificate somebody is asked to act.
	expiryWarning = 14 * 24 * time.Hour
)

// Folder reports whether this process can write to a folder, by making a file there.
func Folder(folder string) Finding {
	fi, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Bad("sudo mkdir -p "+folder, "%s does not exist", folder)
	case err != nil:
		return Bad("run this as root", "%v", err)
	case !fi.IsDir():
		return Bad("sudo mv "+folder+" "+folder+".old", "%s is no folder", folder)
	}
	f, err := os.CreateTemp(folder, ".muster-doctor-")
	switch {
	case errors.Is(err, syscall.EROFS):
		return Bad("sudo mount -o remount,rw "+mountOf(folder)+"; if the kernel made it read-only, look at `dmesg` first", "the file system of %s is read-only", folder)
	case errors.Is(err, fs.ErrPermission):
		return Bad("run this as the user who owns it, whom this shows: ls -ld "+folder, "this user may not write to %s", folder)
	case errors.Is(err, syscall.ENOSPC):
		return Bad("df -h "+folder+"; df -i "+folder, "no space or no inodes are left for %s", folder)
	case err != nil:
		return Bad("ls -ld "+folder, "%v", err)
	}
	err = errors.Join(f.Close(), os.Remove(f.Name()))
	if err != nil {
		return Bad("ls -ld "+folder, "%v", err)
	}
	return Good("%s can be written to", folder)
}

// Protected reports whether somebody besides root and the owner of an installation's folder can change
// what a program is: the file, a link that leads to it, or a folder on the way. Whoever can decides what
// root runs by that path.
func Protected(path, folder string) Finding {
	uid := 0
	if fi, err := os.Lstat(folder); err == nil {
		uid = max(0, disk.OwnerOf(fi).UID)
	}
	err := disk.CheckOwned(disk.OS{}, "doctor", path, uid)
	exposed := new(disk.ExposedError)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Finding{} // nothing is installed there
	case errors.As(err, &exposed) && exposed.Owner >= 0:
		return Bad(fmt.Sprintf("find out who changed it, and do not run %s as root before; then: sudo chown --no-dereference %d %s", path, uid, exposed.Path), "another user can change what %s is: %v", path, err)
	case errors.As(err, &exposed):
		return Bad("sudo chmod go-w "+exposed.Path, "others can change what %s is: %v", path, err)
	case err != nil:
		return Doubt("run this as root", "%v", err)
	}
	return Good("only its owner can change what %s is", path)
}

// Owners reports files in a folder, and in the folders in it, that belong to another user than the
// folder: a command that root ran on a service's data leaves such files, which the service may not
// open.
func Owners(folder string) Finding {
	fi, err := os.Stat(folder)
	if err != nil {
		return Finding{} // the check of the folder says it
	}
	owner, ok := ownerOf(fi)
	if !ok || owner == 0 {
		return Finding{} // root may open all
	}
	var others []string
	for _, dir := range append([]string{"."}, foldersIn(folder)...) {
		entries, _ := os.ReadDir(filepath.Join(folder, dir)) // what may not be read is not judged
		for _, e := range entries {
			fi, err := e.Info()
			if err != nil {
				continue // it has been removed
			}
			if user, ok := ownerOf(fi); ok && user != owner {
				others = append(others, filepath.Join(dir, e.Name()))
			}
		}
	}
	const shown = 3 // enough to recognise what made them
	switch n := len(others); {
	case n == 0:
		return Good("all in %s belongs to its owner", folder)
	case n > shown:
		others = append(others[:shown:shown], fmt.Sprintf("%d more", n-shown))
	}
	return Doubt("sudo chown -R --reference="+folder+" "+folder, "in %s these do not belong to its owner, who may be unable to open them: %s", folder, strings.Join(others, ", "))
}

func foldersIn(folder string) (names []string) {
	entries, _ := os.ReadDir(folder) // what may not be read is not judged
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// mountOf returns the folder at which the file system of a folder is mounted.
func mountOf(folder string) string {
	device := func(dir string) (uint64, bool) {
		fi, err := os.Stat(dir)
		if err != nil {
			return 0, false
		}
		return deviceOf(fi)
	}
	own, ok := device(folder)
	if !ok {
		return folder
	}
	for parent := filepath.Dir(folder); parent != folder; folder, parent = parent, filepath.Dir(parent) {
		if d, ok := device(parent); !ok || d != own {
			break
		}
	}
	return folder
}

// Space compares what is free with what something needs, both in bytes.
func Space(folder string, free, need int64, what string) Finding {
	if free < need {
		return Bad("df -h "+folder+"; then remove what is not needed", "%s has %s free, and %s needs %s", folder, mebibytes(free), what, mebibytes(need))
	}
	return Good("%s has %s free, and %s needs %s", folder, mebibytes(free), what, mebibytes(need))
}

// Inodes compares how many files can still be made with how many something makes.
func Inodes(folder string, free, need int64, what string) Finding {
	if free < need {
		return Bad("df -i "+folder+"; then remove files that are not needed", "%s has %d inodes free, and %s needs %d", folder, free, what, need)
	}
	return Good("%s has %d inodes free, and %s needs %d", folder, free, what, need)
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// Clock compares this machine's clock with another's.
func Clock(here, there time.Time, whose string) Finding {
	skew := here.Sub(there).Abs().Round(time.Second)
	const mend = "sudo timedatectl set-ntp true; then look at `timedatectl`"
	switch {
	case skew >= skewProblem:
		return Bad(mend, "the clock differs by %s from %s: certificates and signatures are judged by it", skew, whose)
	case skew >= skewWarning:
		return Doubt(mend, "the clock differs by %s from %s", skew, whose)
	}
	return Good("the clock agrees with %s", whose)
}

// Certificate judges a certificate: when it ends, and whether it names a host. An empty host is not
// looked for.
func Certificate(c *x509.Certificate, host string, now time.Time, mend string) Finding {
	left := c.NotAfter.Sub(now)
	switch {
	case now.Before(c.NotBefore):
		return Bad("look at the clock: `timedatectl`", "the certificate of %s begins only at %s", c.Subject.CommonName, c.NotBefore.Local().Format(time.DateTime))
	case left <= 0:
		return Bad(mend, "the certificate of %s has ended at %s", c.Subject.CommonName, c.NotAfter.Local().Format(time.DateTime))
	case host != "" && c.VerifyHostname(host) != nil:
		return Bad(mend, "the certificate does not name %s, but %s", host, strings.Join(append(c.DNSNames, texts(c.IPAddresses)...), ", "))
	case left < expiryWarning:
		return Doubt(mend, "the certificate of %s ends in %d days", c.Subject.CommonName, int(left/(24*time.Hour)))
	}
	return Good("the certificate of %s is valid until %s", c.Subject.CommonName, c.NotAfter.Local().Format(time.DateOnly))
}

func texts(ips []net.IP) (s []string) {
	for _, ip := range ips {
		s = append(s, ip.String())
	}
	return s
}

// selinux is where Linux has SELinux' mode.
const selinux = "/sys/fs/selinux/enforce"

// SELinux reports whether SELinux is enforced, which may keep a service from starting a program in
// a folder without a label for programs.
func SELinux(folder string) Finding {
	mode, err := os.ReadFile(selinux)
	if err != nil || strings.TrimSpace(string(mode)) != "1" {
		return Finding{}
	}
	return Doubt(fmt.Sprintf("if a service does not start: sudo ausearch -m avc -ts recent; sudo semanage fcontext -a -t bin_t '%s(/.*)?'; sudo restorecon -R %s", folder, folder), "SELinux is enforced")
}
