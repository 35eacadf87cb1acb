// FUSEKit
