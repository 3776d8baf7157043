//go:build unix && !linux

package secret

const readOnlyFlag = 1 // MNT_RDONLY
