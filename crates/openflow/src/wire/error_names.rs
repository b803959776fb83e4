//! The protocol's names of its errors, as OVS 3.1 prints them.

use std::fmt;

use super::NICIRA;
use crate::message::ErrorCode;

/// Codes of one type, with their names.
type Codes = &'static [(u16, &'static str)];

/// By type.
const STANDARD: &[(u16, Codes)] = &[
    (0, &[(0, "OFPHFC_INCOMPATIBLE"), (1, "OFPHFC_EPERM")]),
    (
        1,
        &[
            (0, "OFPBRC_BAD_VERSION"),
            (1, "OFPBRC_BAD_TYPE"),
            (2, "OFPBRC_BAD_STAT"),
            (3, "OFPBRC_BAD_VENDOR"),
            (4, "OFPBRC_BAD_SUBTYPE"),
            (5, "OFPBRC_EPERM"),
            (6, "OFPBRC_BAD_LEN"),
            (7, "OFPBRC_BUFFER_EMPTY"),
            (8, "OFPBRC_BUFFER_UNKNOWN"),
            (9, "OFPBRC_BAD_TABLE_ID"),
            (10, "OFPBRC_IS_SECONDARY"),
            (11, "OFPBRC_BAD_PORT"),
            (12, "OFPBRC_BAD_PACKET"),
            (13, "OFPBRC_MULTIPART_BUFFER_OVERFLOW"),
            (14, "OFPBRC_MULTIPART_REQUEST_TIMEOUT"),
            (15, "OFPBRC_MULTIPART_REPLY_TIMEOUT"),
            (16, "OFPBRC_MULTIPART_BAD_SCHED"),
            (17, "OFPBRC_PIPELINE_FIELDS_ONLY"),
            (18, "OFPBRC_UNKNOWN"),
        ],
    ),
    (
        2,
        &[
            (0, "OFPBAC_BAD_TYPE"),
            (1, "OFPBAC_BAD_LEN"),
            (2, "OFPBAC_BAD_VENDOR"),
            (3, "OFPBAC_BAD_VENDOR_TYPE"),
            (4, "OFPBAC_BAD_OUT_PORT"),
            (5, "OFPBAC_BAD_ARGUMENT"),
            (6, "OFPBAC_EPERM"),
            (7, "OFPBAC_TOO_MANY"),
            (8, "OFPBAC_BAD_QUEUE"),
            (9, "OFPBAC_BAD_OUT_GROUP"),
            (10, "OFPBAC_MATCH_INCONSISTENT"),
            (11, "OFPBAC_UNSUPPORTED_ORDER"),
            (12, "OFPBAC_BAD_TAG"),
            (13, "OFPBAC_BAD_SET_TYPE"),
            (14, "OFPBAC_BAD_SET_LEN"),
            (15, "OFPBAC_BAD_SET_ARGUMENT"),
            (16, "OFPBAC_BAD_SET_MASK"),
            (17, "OFPBAC_BAD_METER"),
        ],
    ),
    (
        3,
        &[
            (0, "OFPBIC_UNKNOWN_INST"),
            (1, "OFPBIC_UNSUP_INST"),
            (2, "OFPBIC_BAD_TABLE_ID"),
            (3, "OFPBIC_UNSUP_METADATA"),
            (4, "OFPBIC_UNSUP_METADATA_MASK"),
            (5, "OFPBIC_BAD_EXPERIMENTER"),
            (6, "OFPBIC_BAD_EXP_TYPE"),
            (7, "OFPBIC_BAD_LEN"),
            (8, "OFPBIC_EPERM"),
            (9, "OFPBIC_DUP_INST"),
        ],
    ),
    (
        4,
        &[
            (0, "OFPBMC_BAD_TYPE"),
            (1, "OFPBMC_BAD_LEN"),
            (2, "OFPBMC_BAD_TAG"),
            (3, "OFPBMC_BAD_DL_ADDR_MASK"),
            (4, "OFPBMC_BAD_NW_ADDR_MASK"),
            (5, "OFPBMC_BAD_WILDCARDS"),
            (6, "OFPBMC_BAD_FIELD"),
            (7, "OFPBMC_BAD_VALUE"),
            (8, "OFPBMC_BAD_MASK"),
            (9, "OFPBMC_BAD_PREREQ"),
            (10, "OFPBMC_DUP_FIELD"),
            (11, "OFPBMC_EPERM"),
        ],
    ),
    (
        5,
        &[
            (0, "OFPFMFC_UNKNOWN"),
            (1, "OFPFMFC_TABLE_FULL"),
            (2, "OFPFMFC_BAD_TABLE_ID"),
            (3, "OFPFMFC_OVERLAP"),
            (4, "OFPFMFC_EPERM"),
            (5, "OFPFMFC_BAD_TIMEOUT"),
            (6, "OFPFMFC_BAD_COMMAND"),
            (7, "OFPFMFC_BAD_FLAGS"),
            (8, "OFPFMFC_CANT_SYNC"),
            (9, "OFPFMFC_BAD_PRIORITY"),
            (10, "OFPFMFC_IS_SYNC"),
        ],
    ),
    (
        6,
        &[
            (0, "OFPGMFC_GROUP_EXISTS"),
            (1, "OFPGMFC_INVALID_GROUP"),
            (2, "OFPGMFC_WEIGHT_UNSUPPORTED"),
            (3, "OFPGMFC_OUT_OF_GROUPS"),
            (4, "OFPGMFC_OUT_OF_BUCKETS"),
            (5, "OFPGMFC_CHAINING_UNSUPPORTED"),
            (6, "OFPGMFC_WATCH_UNSUPPORTED"),
            (7, "OFPGMFC_LOOP"),
            (8, "OFPGMFC_UNKNOWN_GROUP"),
            (9, "OFPGMFC_CHAINED_GROUP"),
            (10, "OFPGMFC_BAD_TYPE"),
            (11, "OFPGMFC_BAD_COMMAND"),
            (12, "OFPGMFC_BAD_BUCKET"),
            (13, "OFPGMFC_BAD_WATCH"),
            (14, "OFPGMFC_EPERM"),
            (15, "OFPGMFC_UNKNOWN_BUCKET"),
            (16, "OFPGMFC_BUCKET_EXISTS"),
        ],
    ),
    (
        7,
        &[
            (0, "OFPPMFC_BAD_PORT"),
            (1, "OFPPMFC_BAD_HW_ADDR"),
            (2, "OFPPMFC_BAD_CONFIG"),
            (3, "OFPPMFC_BAD_ADVERTISE"),
            (4, "OFPPMFC_EPERM"),
        ],
    ),
    (8, &[(0, "OFPTMFC_BAD_TABLE"), (1, "OFPTMFC_BAD_CONFIG"), (2, "OFPTMFC_EPERM")]),
    (9, &[(0, "OFPQOFC_BAD_PORT"), (1, "OFPQOFC_BAD_QUEUE"), (2, "OFPQOFC_EPERM")]),
    (10, &[(0, "OFPSCFC_BAD_FLAGS"), (1, "OFPSCFC_BAD_LEN"), (2, "OFPSCFC_EPERM")]),
    (
        11,
        &[
            (0, "OFPRRFC_STALE"),
            (1, "OFPRRFC_UNSUP"),
            (2, "OFPRRFC_BAD_ROLE"),
            (3, "OFPRRFC_ID_UNSUP"),
            (4, "OFPRRFC_ID_IN_USE"),
        ],
    ),
    (
        12,
        &[
            (0, "OFPMMFC_UNKNOWN"),
            (1, "OFPMMFC_METER_EXISTS"),
            (2, "OFPMMFC_INVALID_METER"),
            (3, "OFPMMFC_UNKNOWN_METER"),
            (4, "OFPMMFC_BAD_COMMAND"),
            (5, "OFPMMFC_BAD_FLAGS"),
            (6, "OFPMMFC_BAD_RATE"),
            (7, "OFPMMFC_BAD_BURST"),
            (8, "OFPMMFC_BAD_BAND"),
            (9, "OFPMMFC_BAD_BAND_VALUE"),
            (10, "OFPMMFC_OUT_OF_METERS"),
            (11, "OFPMMFC_OUT_OF_BANDS"),
        ],
    ),
    (
        13,
        &[
            (0, "OFPTFFC_BAD_TABLE"),
            (1, "OFPTFFC_BAD_METADATA"),
            (5, "OFPTFFC_EPERM"),
            (6, "OFPTFFC_BAD_CAPA"),
            (7, "OFPTFFC_BAD_MAX_ENT"),
            (8, "OFPTFFC_BAD_FEATURES"),
            (9, "OFPTFFC_BAD_COMMAND"),
            (10, "OFPTFFC_TOO_MANY"),
        ],
    ),
    (
        14,
        &[
            (0, "OFPBPC_BAD_TYPE"),
            (1, "OFPBPC_BAD_LEN"),
            (2, "OFPBPC_BAD_VALUE"),
            (3, "OFPBPC_TOO_MANY"),
            (4, "OFPBPC_DUP_TYPE"),
            (5, "OFPBPC_BAD_EXPERIMENTER"),
            (6, "OFPBPC_BAD_EXP_TYPE"),
            (7, "OFPBPC_BAD_EXP_VALUE"),
            (8, "OFPBPC_EPERM"),
        ],
    ),
    (15, &[(0, "OFPACFC_INVALID"), (1, "OFPACFC_UNSUPPORTED"), (2, "OFPACFC_EPERM")]),
    (
        16,
        &[
            (0, "OFPMOFC_UNKNOWN"),
            (1, "OFPMOFC_MONITOR_EXISTS"),
            (2, "OFPMOFC_INVALID_MONITOR"),
            (3, "OFPMOFC_UNKNOWN_MONITOR"),
            (4, "OFPMOFC_BAD_COMMAND"),
            (5, "OFPMOFC_BAD_FLAGS"),
            (6, "OFPMOFC_BAD_TABLE_ID"),
            (7, "OFPMOFC_BAD_OUT"),
        ],
    ),
    (
        17,
        &[
            (0, "OFPBFC_UNKNOWN"),
            (1, "OFPBFC_EPERM"),
            (2, "OFPBFC_BAD_ID"),
            (3, "OFPBFC_BUNDLE_EXIST"),
            (4, "OFPBFC_BUNDLE_CLOSED"),
            (5, "OFPBFC_OUT_OF_BUNDLES"),
            (6, "OFPBFC_BAD_TYPE"),
            (7, "OFPBFC_BAD_FLAGS"),
            (8, "OFPBFC_MSG_BAD_LEN"),
            (9, "OFPBFC_MSG_BAD_XID"),
            (10, "OFPBFC_MSG_UNSUP"),
            (11, "OFPBFC_MSG_CONFLICT"),
            (12, "OFPBFC_MSG_TOO_MANY"),
            (13, "OFPBFC_MSG_FAILED"),
            (14, "OFPBFC_TIMEOUT"),
            (15, "OFPBFC_BUNDLE_IN_PROGRESS"),
            (16, "OFPBFC_SCHED_NOT_SUPPORTED"),
            (17, "OFPBFC_SCHED_FUTURE"),
            (18, "OFPBFC_SCHED_PAST"),
        ],
    ),
];

/// Nicira's own.
const NICIRA_CODES: Codes = &[
    (2, "NXBRC_NXM_INVALID"),
    (3, "NXBRC_NXM_BAD_TYPE"),
    (4, "NXBRC_MUST_BE_ZERO"),
    (5, "NXBRC_BAD_REASON"),
    (9, "NXBRC_FM_BAD_EVENT"),
    (10, "NXBRC_UNENCODABLE_ERROR"),
    (11, "NXBAC_MUST_BE_ZERO"),
    (12, "NXFMFC_HARDWARE"),
    (13, "NXFMFC_BAD_TABLE_ID"),
    (15, "NXBAC_BAD_CONJUNCTION"),
    (16, "NXTTMFC_BAD_COMMAND"),
    (17, "NXTTMFC_BAD_OPT_LEN"),
    (18, "NXTTMFC_BAD_FIELD_IDX"),
    (19, "NXTTMFC_TABLE_FULL"),
    (20, "NXTTMFC_ALREADY_MAPPED"),
    (21, "NXTTMFC_DUP_ENTRY"),
    (22, "OFPBFC_BAD_VERSION"),
    (23, "NXQOFC_QUEUE_ERROR"),
    (34, "NXR_NOT_SUPPORTED"),
    (35, "NXR_STALE"),
    (36, "NXST_NOT_CONFIGURED"),
    (37, "NXFMFC_INVALID_TLV_FIELD"),
    (38, "NXTTMFC_INVALID_TLV_DEL"),
    (39, "NXBAC_BAD_HEADER_TYPE"),
    (40, "NXBAC_UNKNOWN_ED_PROP"),
    (41, "NXBAC_BAD_ED_PROP"),
    (42, "NXBAC_CT_DATAPATH_SUPPORT"),
    (43, "NXBMC_CT_DATAPATH_SUPPORT"),
    (44, "NXTFFC_DUP_TABLE"),
];

impl ErrorCode {
    /// The protocol's name (`OFPBAC_BAD_OUT_PORT`), if it has one here.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        let codes = match self.experimenter {
            None => STANDARD.iter().find(|(t, ..)| *t == self.error_type)?.1,
            Some(NICIRA) => NICIRA_CODES,
            Some(_) => return None,
        };
        codes.iter().find(|(code, _)| *code == self.code).map(|(_, name)| *name)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.experimenter) {
            (Some(name), _) => f.write_str(name),
            (None, None) => write!(f, "error type {} code {}", self.error_type, self.code),
            (None, Some(vendor)) => write!(f, "error of {vendor:#x} code {}", self.code),
        }
    }
}
