package layout

// exe is the suffix of program names, and of the links to programs: Windows starts
// only files with this suffix.
const exe = ".exe"

// lockPID is the suffix of the file with the process id of a lock's holder. It is a file of its
// own: on Windows no other program can read a file that is locked.
const lockPID = ".pid"

// DefaultTop is the default top folder. Users may write to new folders on the drive, but not below
// this one.
const DefaultTop = `C:\Program Files\Muster`
